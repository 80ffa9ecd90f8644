//! The text of a module.
//!
//! An instruction's text is its opcode, modifiers and operands, from the typed instruction and
//! nothing else. Text without locations and notes is what is hashed: two modules with equal hashes
//! assemble to the same code.

use crate::inst::*;
use crate::module::*;
use std::fmt::{self, Display, Formatter, Write};
use tessera_support::{Hash128, StableHasher};
use tessera_tile::ops::asm::Piece;

impl Module {
    pub fn text(&self) -> String {
        self.to_string()
    }

    /// Without line information and notes.
    pub fn text_without_places(&self) -> String {
        let mut out = String::new();
        write_module(&mut out, self, false).unwrap_or_default();
        out
    }

    pub fn hash(&self) -> Hash128 {
        StableHasher::of(&self.text_without_places())
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_module(f, self, true)
    }
}

fn write_module(f: &mut dyn Write, module: &Module, places: bool) -> fmt::Result {
    writeln!(f, ".version {}\n.target {}\n.address_size 64", module.version, module.target)?;
    if module.kernels.iter().any(|k| k.dynamic_shared > 0) {
        writeln!(f, "\n.extern .shared .align {DYNAMIC_ALIGN} .b8 {DYNAMIC_SHARED}[];")?;
    }
    if places && !module.files.is_empty() {
        writeln!(f)?;
        for (number, name) in (1..).zip(&module.files) {
            writeln!(f, ".file {number} \"{}\"", in_quotes(name))?;
        }
    }
    for kernel in &module.kernels {
        writeln!(f)?;
        write_kernel(f, kernel, places)?;
    }
    Ok(())
}

/// A file name as a PTX string, which has no escapes.
fn in_quotes(name: &str) -> String {
    name.chars().map(|c| if c == '"' || c.is_control() { '_' } else { c }).collect()
}

fn write_kernel(f: &mut dyn Write, kernel: &Kernel, places: bool) -> fmt::Result {
    write!(f, ".visible .entry {}(", kernel.name)?;
    for (place, p) in kernel.params.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        write!(f, "{comma}\n    .param .align {} .b8 {}[{}]", p.align, p.name, p.bytes)?;
    }
    writeln!(f, "{})", if kernel.params.is_empty() { "" } else { "\n" })?;
    writeln!(f, ".maxntid {}, 1, 1", kernel.threads)?;
    if let Some(blocks) = kernel.min_blocks {
        writeln!(f, ".minnctapersm {blocks}")?;
    }
    if let Some(registers) = kernel.max_registers {
        writeln!(f, ".maxnreg {registers}")?;
    }
    if kernel.explicit_cluster {
        writeln!(f, ".explicitcluster")?;
    }
    if kernel.cluster > 1 {
        writeln!(f, ".reqnctapercluster {}, 1, 1", kernel.cluster)?;
    }
    writeln!(f, "{{")?;
    for class in [Class::Pred, Class::B16, Class::B32, Class::B64] {
        let count = kernel.regs[class.place()];
        if count > 0 {
            writeln!(f, "    .reg .{} {}<{count}>;", class.spelling(), class.prefix())?;
        }
    }
    for var in &kernel.shared {
        writeln!(f, "    .shared .align {} .b8 {}[{}];", var.align, var.name, var.bytes)?;
    }
    for stmt in &kernel.body {
        match stmt {
            Stmt::Inst { guard, inst } => {
                writeln!(f, "    {}", Guarded { guard: *guard, inst })?;
            }
            Stmt::Label(label) => writeln!(f, "{label}:")?,
            Stmt::Place { file, line, column } if places => {
                writeln!(f, "    .loc {file} {line} {column}")?;
            }
            Stmt::Note(text) if places => {
                text.lines().try_for_each(|line| writeln!(f, "    // {line}"))?;
            }
            Stmt::Place { .. } | Stmt::Note(_) => {}
        }
    }
    writeln!(f, "}}")
}

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.class.prefix(), self.id)
    }
}

impl Display for Label {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "$L{}", self.0)
    }
}

impl Display for Guard {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.negated { "!" } else { "" }, self.reg)
    }
}

impl Display for Addr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.base, self.offset) {
            (Base::Reg(r), 0) => write!(f, "[{r}]"),
            (Base::Reg(r), n) => write!(f, "[{r}+{n}]"),
            (Base::Name(name), 0) => write!(f, "[{name}]"),
            (Base::Name(name), n) => write!(f, "[{name}+{n}]"),
            (Base::None, n) => write!(f, "[{n}]"),
        }
    }
}

/// An operand as an instruction of type `ty` reads it: constants are printed in that type, so that
/// the bits do not depend on how they were given.
struct As(Ty, Opnd);

impl Display for As {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bits = match self.1 {
            Opnd::Reg(r) => return write!(f, "{r}"),
            Opnd::Special(s) => return f.write_str(s.spelling()),
            Opnd::Int(v) if self.0 != Ty::F32 && self.0 != Ty::F64 => return write!(f, "{v}"),
            Opnd::Int(v) => v as u64,
            Opnd::F32(bits) => bits as u64,
            Opnd::F64(bits) => bits,
        };
        match self.0 {
            Ty::F32 => write!(f, "0f{:08X}", bits as u32),
            Ty::F64 => write!(f, "0d{bits:016X}"),
            _ => write!(f, "{bits:#x}"),
        }
    }
}

/// Registers or constants in braces, or one of them alone.
fn row(ty: Ty, items: &[Opnd]) -> String {
    match items {
        [one] => As(ty, *one).to_string(),
        _ => braces(items.iter().map(|o| As(ty, *o))),
    }
}

fn braces<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    format!("{{{}}}", items.join(", "))
}

fn comma_list(ty: Ty, items: &[Opnd]) -> String {
    items.iter().map(|o| format!(", {}", As(ty, *o))).collect()
}

/// `.v4` and the like.
fn vector(n: usize) -> String {
    if n == 1 { String::new() } else { format!(".v{n}") }
}

fn flag(on: bool, text: &'static str) -> &'static str {
    if on { text } else { "" }
}

fn round(round: Option<Round>) -> String {
    round.map_or(String::new(), |r| format!(".{}", r.spelling()))
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Guarded { guard: None, inst: self }.fmt(f)
    }
}

/// An instruction with its guard. One that prints as two PTX instructions has the guard twice.
pub struct Guarded<'a> {
    pub guard: Option<Guard>,
    pub inst: &'a Inst,
}

impl Display for Guarded<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let g = self.guard.map_or(String::new(), |g| format!("@{g} "));
        match self.inst {
            // A parameter's own name is an offset, not an address.
            Inst::AddressOf { d, name } if d.class == Class::B64 => {
                write!(f, "{g}mov.b64 {d}, {name}; {g}cvta.param.u64 {d}, {d};")
            }
            // These conversions take byte registers, which nothing else does.
            Inst::Cvt { d, to: Ty::E2M1x2, .. } => {
                let (op, a) = cvt(self.inst);
                write!(f, "{{ .reg .b8 %b; {g}{op} %b{a}; {g}cvt.u16.u8 {d}, %b; }}")
            }
            Inst::Cvt { d, from: Ty::E2M1x2, a, .. } => {
                let a = As(Ty::B16, *a);
                let op = cvt(self.inst).0;
                write!(f, "{{ .reg .b8 %b; {g}mov.b16 {{%b, _}}, {a}; {g}{op} {d}, %b; }}")
            }
            // A scope of its own: labels and registers of the text may be declared in it again.
            Inst::Text { pieces, d, a } => {
                let text = |p: &Piece| match p {
                    Piece::Text(text) => text.clone(),
                    Piece::Register(n) => match d.iter().chain(a).nth(*n) {
                        Some(r) => r.to_string(),
                        None => format!("${n}"),
                    },
                };
                let text: String = pieces.iter().map(text).collect();
                // A comment at its end must not hide what follows.
                match text.contains('\n') || text.contains("//") {
                    true => write!(f, "{{\n{text}\n    }}"),
                    false => write!(f, "{{ {} }}", text.trim()),
                }
            }
            inst => {
                write!(f, "{g}")?;
                write_inst(f, inst)?;
                f.write_char(';')
            }
        }
    }
}

/// The opcode of a conversion, and its operands with a comma before each.
fn cvt(inst: &Inst) -> (String, String) {
    let Inst::Cvt { to, a, b, from, round: r, ftz, sat, .. } = inst else {
        return Default::default();
    };
    let narrow = to.bits() <= 16 && !to.is_integer() && !matches!(to, Ty::F16 | Ty::BF16);
    let sat = flag(*sat, if narrow { ".satfinite" } else { ".sat" });
    let ftz = flag(*ftz, ".ftz");
    let (to, ty) = (to.spelling(), from.spelling());
    let a: Vec<Opnd> = [Some(*a), *b].into_iter().flatten().collect();
    (format!("cvt{}{ftz}{sat}.{to}.{ty}", round(*r)), comma_list(*from, &a))
}

fn write_inst(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    match inst {
        Inst::Mov { ty, d, a } => {
            let ty = ty.in_register();
            write!(f, "mov.{} {d}, {}", ty.spelling(), As(ty, *a))
        }
        Inst::Pack { d, parts } => {
            write!(f, "mov.{} {d}, {}", d.class.spelling(), braces(parts))
        }
        Inst::Unpack { parts, a } => {
            write!(f, "mov.{} {}, {a}", a.class.spelling(), braces(parts))
        }
        Inst::AddressOf { d, name } => write!(f, "mov.{} {d}, {name}", d.class.spelling()),
        Inst::Alu { op, ty, round: r, ftz, sat, d, a } => {
            let (name, after, ty) = op.spelling(*ty);
            let (r, ftz, sat) = (round(*r), flag(*ftz, ".ftz"), flag(*sat, ".sat"));
            write!(f, "{name}{r}{ftz}{sat}{after}.{}", ty.spelling())?;
            match op {
                Alu::Dp4a => write!(f, ".{} {d}{}", ty.spelling(), comma_list(ty, a)),
                Alu::Lop3(table) => write!(f, " {d}{}, {table:#x}", comma_list(ty, a)),
                _ => write!(f, " {d}{}", comma_list(ty, a)),
            }
        }
        Inst::Cvt { d, .. } => {
            let (op, a) = cvt(inst);
            write!(f, "{op} {d}{a}")
        }
        Inst::Setp { cmp, ty, ftz, d, a, b } => {
            let (cmp, name, ftz) = (cmp.spelling(), ty.spelling(), flag(*ftz, ".ftz"));
            write!(f, "setp.{cmp}{ftz}.{name} {d}, {}, {}", As(*ty, *a), As(*ty, *b))
        }
        Inst::Selp { ty, d, a, b, p } => {
            let ty = ty.in_register();
            write!(f, "selp.{} {d}, {}, {}, {p}", ty.spelling(), As(ty, *a), As(ty, *b))
        }
        Inst::Ld { .. } | Inst::St { .. } | Inst::Atom { .. } | Inst::Red { .. } => {
            write_access(f, inst)
        }
        Inst::Shfl { .. } | Inst::Vote { .. } | Inst::Redux { .. } | Inst::Activemask { .. } => {
            write_warp(f, inst)
        }
        Inst::Elect { .. } | Inst::WarpSync { .. } => write_warp(f, inst),
        Inst::BarSync { id, count: None } => write!(f, "bar.sync {}", As(Ty::U32, *id)),
        Inst::BarSync { id, count: Some(count) } => {
            write!(f, "bar.sync {}, {count}", As(Ty::U32, *id))
        }
        Inst::BarArrive { id, count } => {
            write!(f, "bar.arrive {}, {count}", As(Ty::U32, *id))
        }
        Inst::BarRedOr { id, d, p } => write!(f, "bar.red.or.pred {d}, {id}, {p}"),
        Inst::Fence { sem, scope } => {
            write!(f, "fence.{}.{}", sem.spelling(), scope.spelling())
        }
        Inst::FenceProxyAsync => f.write_str("fence.proxy.async.shared::cta"),
        Inst::FenceProxyAsyncGlobal => f.write_str("fence.proxy.async.global"),
        Inst::FenceMbarInit => f.write_str("fence.mbarrier_init.release.cluster"),
        Inst::CpAsync { dst, src, bytes, src_bytes } => {
            // Only 16-byte copies can bypass L1.
            let level = if *bytes == 16 { "cg" } else { "ca" };
            write!(f, "cp.async.{level}.shared.global {dst}, {src}, {bytes}")?;
            src_bytes.iter().try_for_each(|n| write!(f, ", {}", As(Ty::U32, *n)))
        }
        Inst::CpCommit => f.write_str("cp.async.commit_group"),
        Inst::CpWait { groups } => write!(f, "cp.async.wait_group {groups}"),
        Inst::CpAsyncArrive { addr } => {
            write!(f, "cp.async.mbarrier.arrive.noinc.shared.b64 {addr}")
        }
        Inst::Ldmatrix { d, trans, addr } => {
            let (n, trans) = (d.len(), flag(*trans, ".trans"));
            write!(f, "ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {}, {addr}", braces(d))
        }
        Inst::Stmatrix { a, trans, addr } => {
            let (n, trans) = (a.len(), flag(*trans, ".trans"));
            write!(f, "stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {addr}, {}", braces(a))
        }
        Inst::Mma { row, d, a, b, c } => {
            let MmaRow { m, n, k, .. } = row;
            let (a_ty, b_ty, c_ty) = (row.a.spelling(), row.b.spelling(), row.c.spelling());
            let kind = flag(row.is_f8f6f4(), ".kind::f8f6f4");
            let sat = flag(row.sat, ".satfinite");
            write!(f, "mma.sync.aligned.m{m}n{n}k{k}.row.col{kind}{sat}")?;
            write!(f, ".{c_ty}.{a_ty}.{b_ty}.{c_ty} ")?;
            write!(f, "{}, {}, {}, {}", braces(d), braces(a), braces(b), braces(c))
        }
        Inst::Mapa { d, a, rank } => {
            write!(f, "mapa.shared::cluster.u32 {d}, {a}, {}", As(Ty::U32, *rank))
        }
        Inst::ClusterArrive { release } => {
            let sem = if *release { "release" } else { "relaxed" };
            write!(f, "barrier.cluster.arrive.{sem}")
        }
        // Waiting always acquires.
        Inst::ClusterWait { acquire: _ } => f.write_str("barrier.cluster.wait.acquire"),
        Inst::Bra { to, uniform } => write!(f, "bra{} {to}", flag(*uniform, ".uni")),
        Inst::Ret => f.write_str("ret"),
        Inst::Trap => f.write_str("trap"),
        // `Guarded` writes it.
        Inst::Text { .. } => Ok(()),
        Inst::Nanosleep { ns } => write!(f, "nanosleep.u32 {ns}"),
        Inst::Event { number } => write!(f, "pmevent {number}"),
        Inst::PrefetchMap { map } => write!(f, "prefetch.tensormap [{map}]"),
        Inst::Prefetch { addr } => write!(f, "prefetch.global.L2 {addr}"),
        Inst::SetMaxRegs { more, count } => {
            let way = if *more { "inc" } else { "dec" };
            write!(f, "setmaxnreg.{way}.sync.aligned.u32 {count}")
        }
        Inst::GridWait => f.write_str("griddepcontrol.wait"),
        Inst::GridLaunchNext => f.write_str("griddepcontrol.launch_dependents"),
        Inst::MbarInit { .. }
        | Inst::MbarInval { .. }
        | Inst::MbarArrive { .. }
        | Inst::MbarArriveExpect { .. }
        | Inst::MbarExpect { .. }
        | Inst::MbarWait { .. } => write_mbarrier(f, inst),
        Inst::TmaLoad { .. }
        | Inst::TmaStore { .. }
        | Inst::TmaReduce { .. }
        | Inst::TmaPrefetch { .. } => write_tensor_copy(f, inst),
        Inst::BulkLoad { .. }
        | Inst::BulkStore { .. }
        | Inst::BulkReduce { .. }
        | Inst::BulkSend { .. }
        | Inst::BulkPrefetch { .. } => write_bulk_copy(f, inst),
        Inst::BulkCommit => f.write_str("cp.async.bulk.commit_group"),
        Inst::BulkWait { groups, read } => {
            write!(f, "cp.async.bulk.wait_group{} {groups}", flag(*read, ".read"))
        }
        Inst::StAsync { ty, addr, a, bar } => {
            let ty = ty.in_memory();
            let (n, name) = (vector(a.len()), ty.spelling());
            write!(f, "st.async.shared::cluster.mbarrier::complete_tx::bytes{n}.{name} ")?;
            write!(f, "{addr}, {}, {bar}", row(ty, a))
        }
        Inst::RedAsync { op, ty, addr, a, bar } => {
            let (op, ty) = op.with_type(*ty);
            write!(f, "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes")?;
            write!(f, ".{op}.{} {addr}, {}, {bar}", ty.spelling(), As(ty, *a))
        }
        Inst::Wgmma { .. } => write_wgmma(f, inst),
        Inst::WgmmaFence => f.write_str("wgmma.fence.sync.aligned"),
        Inst::WgmmaCommit => f.write_str("wgmma.commit_group.sync.aligned"),
        Inst::WgmmaWait { groups } => write!(f, "wgmma.wait_group.sync.aligned {groups}"),
    }
}

/// Loads, stores and atomics.
fn write_access(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    match inst {
        Inst::Ld { space, ty, d, addr, cache, sem, scope } => {
            let cache = match cache {
                Cache::Usual => "",
                Cache::Stream => ".L1::no_allocate",
                Cache::ReadOnly => ".nc",
                Cache::ReadOnlyStream => ".nc.L1::no_allocate",
            };
            let (order, space, n) = (sem.modifier(*scope), space.spelling(), vector(d.len()));
            write!(f, "ld{order}.{space}{cache}{n}.{} ", ty.in_memory().spelling())?;
            let d: Vec<Opnd> = d.iter().copied().map(Opnd::Reg).collect();
            write!(f, "{}, {addr}", row(*ty, &d))
        }
        Inst::St { space, ty, a, addr, cache, sem, scope } => {
            let cache = match cache {
                Cache::Usual | Cache::ReadOnly => "",
                Cache::Stream | Cache::ReadOnlyStream => ".L1::no_allocate",
            };
            let (order, space, n) = (sem.modifier(*scope), space.spelling(), vector(a.len()));
            let ty = ty.in_memory();
            write!(f, "st{order}.{space}{cache}{n}.{} {addr}, {}", ty.spelling(), row(ty, a))
        }
        Inst::Atom { space, sem, scope, op, ty, d, addr, a, b } => {
            let (order, space) = (sem.modifier(*scope), space.spelling());
            let (op, ty) = op.with_type(*ty);
            write!(f, "atom{order}.{space}.{op}.{} {d}, {addr}, ", ty.spelling())?;
            write!(f, "{}", As(ty, *a))?;
            b.iter().try_for_each(|b| write!(f, ", {}", As(ty, *b)))
        }
        Inst::Red { space, sem, scope, op, ty, addr, a } => {
            let (order, space, n) = (sem.modifier(*scope), space.spelling(), vector(a.len()));
            let (op, ty) = op.with_type(*ty);
            write!(f, "red{order}.{space}.{op}{n}.{} {addr}, {}", ty.spelling(), row(ty, a))
        }
        _ => Ok(()),
    }
}

/// Warp-collective instructions.
fn write_warp(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    match inst {
        Inst::Shfl { kind, d, ok, a, b, c, mask } => {
            write!(f, "shfl.sync.{}.b32 {d}", kind.spelling())?;
            ok.iter().try_for_each(|p| write!(f, "|{p}"))?;
            write!(f, "{}", comma_list(Ty::B32, &[*a, *b, *c, *mask]))
        }
        Inst::Vote { kind, d, p, mask } => {
            write!(f, "vote.sync.{} {d}, {p}, {}", kind.spelling(), As(Ty::B32, *mask))
        }
        Inst::Redux { op, ty, d, a, mask } => {
            let ty = match op {
                AtomOp::And | AtomOp::Or | AtomOp::Xor => ty.untyped(),
                _ => *ty,
            };
            write!(f, "redux.sync.{}.{} {d}, ", op.spelling(), ty.spelling())?;
            write!(f, "{}, {}", As(ty, *a), As(Ty::B32, *mask))
        }
        Inst::Activemask { d } => write!(f, "activemask.b32 {d}"),
        Inst::Elect { p, mask } => write!(f, "elect.sync _|{p}, {}", As(Ty::B32, *mask)),
        Inst::WarpSync { mask } => write!(f, "bar.warp.sync {}", As(Ty::B32, *mask)),
        _ => Ok(()),
    }
}

fn write_mbarrier(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    match inst {
        Inst::MbarInit { addr, count } => {
            write!(f, "mbarrier.init.shared.b64 {addr}, {}", As(Ty::U32, *count))
        }
        Inst::MbarInval { addr } => write!(f, "mbarrier.inval.shared.b64 {addr}"),
        // No memory order is named: a release at cluster scope costs a fence of the GPU.
        Inst::MbarArrive { space, addr, count } => {
            let space = match (space, count) {
                // As older targets and versions of PTX spell it.
                (Space::Shared, None) => space.spelling(),
                _ => space.in_cluster(),
            };
            write!(f, "mbarrier.arrive.{space}.b64 _, {addr}")?;
            count.iter().try_for_each(|n| write!(f, ", {}", As(Ty::U32, *n)))
        }
        Inst::MbarArriveExpect { space, addr, bytes } => {
            write!(f, "mbarrier.arrive.expect_tx.{}.b64 _, {addr}, ", space.in_cluster())?;
            write!(f, "{}", As(Ty::U32, *bytes))
        }
        Inst::MbarExpect { addr, bytes } => {
            write!(f, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {addr}, ")?;
            write!(f, "{}", As(Ty::U32, *bytes))
        }
        Inst::MbarWait { d, addr, parity, block } => {
            let kind = if *block { "try_wait" } else { "test_wait" };
            let parity = As(Ty::U32, *parity);
            write!(f, "mbarrier.{kind}.parity.shared.b64 {d}, {addr}, {parity}")
        }
        _ => Ok(()),
    }
}

/// The optional parts of a bulk copy: modifiers, then operands.
fn extras(multicast: &Option<Opnd>, hint: &Option<Reg>) -> (String, String) {
    let mut modifiers = String::new();
    let mut operands = String::new();
    if let Some(mask) = multicast {
        modifiers += ".multicast::cluster";
        operands += &format!(", {}", As(Ty::B16, *mask));
    }
    if let Some(policy) = hint {
        modifiers += ".L2::cache_hint";
        operands += &format!(", {policy}");
    }
    (modifiers, operands)
}

fn write_tensor_copy(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    let boxed = |map: &Reg, coords: &[Opnd]| {
        format!("[{map}, {}]", braces(coords.iter().map(|c| As(Ty::S32, *c))))
    };
    match inst {
        Inst::TmaLoad { dst, map, coords, bar, multicast, hint } => {
            let (modifiers, operands) = extras(multicast, hint);
            write!(f, "cp.async.bulk.tensor.{}d.shared::cluster.global", coords.len())?;
            write!(f, ".mbarrier::complete_tx::bytes{modifiers} {dst}, ")?;
            write!(f, "{}, {bar}{operands}", boxed(map, coords))
        }
        Inst::TmaStore { map, coords, src, hint } => {
            let (modifiers, operands) = extras(&None, hint);
            write!(f, "cp.async.bulk.tensor.{}d.global.shared::cta", coords.len())?;
            write!(f, ".bulk_group{modifiers} {}, {src}{operands}", boxed(map, coords))
        }
        Inst::TmaReduce { op, map, coords, src, hint } => {
            let (modifiers, operands) = extras(&None, hint);
            let (n, op) = (coords.len(), op.spelling());
            write!(f, "cp.reduce.async.bulk.tensor.{n}d.global.shared::cta.{op}")?;
            write!(f, ".bulk_group{modifiers} {}, {src}{operands}", boxed(map, coords))
        }
        Inst::TmaPrefetch { map, coords } => {
            let n = coords.len();
            write!(f, "cp.async.bulk.prefetch.tensor.{n}d.L2.global {}", boxed(map, coords))
        }
        _ => Ok(()),
    }
}

fn write_bulk_copy(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    match inst {
        Inst::BulkLoad { dst, src, bytes, bar, multicast, hint } => {
            let (modifiers, operands) = extras(multicast, hint);
            write!(f, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")?;
            let bytes = As(Ty::U32, *bytes);
            write!(f, "{modifiers} {dst}, {src}, {bytes}, {bar}{operands}")
        }
        Inst::BulkStore { dst, src, bytes, hint } => {
            let (modifiers, operands) = extras(&None, hint);
            write!(f, "cp.async.bulk.global.shared::cta.bulk_group{modifiers} ")?;
            write!(f, "{dst}, {src}, {}{operands}", As(Ty::U32, *bytes))
        }
        Inst::BulkReduce { op, ty, dst, src, bytes, hint } => {
            let (modifiers, operands) = extras(&None, hint);
            let (op, ty) = op.with_type(*ty);
            write!(f, "cp.reduce.async.bulk.global.shared::cta.bulk_group{modifiers}")?;
            let bytes = As(Ty::U32, *bytes);
            write!(f, ".{op}.{} {dst}, {src}, {bytes}{operands}", ty.spelling())
        }
        Inst::BulkSend { dst, src, bytes, bar } => {
            write!(f, "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes ")?;
            write!(f, "{dst}, {src}, {}, {bar}", As(Ty::U32, *bytes))
        }
        Inst::BulkPrefetch { src, bytes } => {
            write!(f, "cp.async.bulk.prefetch.L2.global {src}, {}", As(Ty::U32, *bytes))
        }
        _ => Ok(()),
    }
}

fn write_wgmma(f: &mut Formatter<'_>, inst: &Inst) -> fmt::Result {
    let Inst::Wgmma { row, d, a, b, add, neg_a, neg_b, trans_a, trans_b } = inst else {
        return Ok(());
    };
    let (a_ty, b_ty, c_ty) = (row.a.spelling(), row.b.spelling(), row.c.spelling());
    let sat = flag(row.sat, ".satfinite");
    let (n, k) = (row.n, row.k);
    write!(
        f,
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{c_ty}.{a_ty}.{b_ty}{sat} {}, ",
        braces(d)
    )?;
    match a {
        WgmmaA::Shared(a) => write!(f, "{a}")?,
        WgmmaA::Regs(a) => write!(f, "{}", braces(a))?,
    }
    write!(f, ", {b}, {}", As(Ty::Pred, *add))?;
    if row.c == Ty::S32 {
        return Ok(());
    }
    let sign = |negated: bool| if negated { -1 } else { 1 };
    write!(f, ", {}, {}", sign(*neg_a), sign(*neg_b))?;
    if matches!(row.a, Ty::F16 | Ty::BF16) {
        if matches!(a, WgmmaA::Shared(_)) {
            write!(f, ", {}", u8::from(*trans_a))?;
        }
        write!(f, ", {}", u8::from(*trans_b))?;
    }
    Ok(())
}
