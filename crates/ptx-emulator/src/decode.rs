//! Decoding: from a kernel to a [`Program`]. Instructions that cannot be run are found here, before
//! the run.

use super::alu::{self, AluSpec};
use super::cvt::{self, CvtSpec};
use super::fast;
use super::float::Mods;
use super::program::*;
use std::collections::BTreeMap;
use tessera_ptx::inst::*;
use tessera_ptx::module::*;

/// The parameter bytes and the offset of each parameter.
pub(super) struct Params<'a> {
    pub bytes: &'a [u8],
    pub offsets: BTreeMap<String, u32>,
}

impl Params<'_> {
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }
}

pub(super) struct Decoder<'a> {
    pub(super) kernel: &'a Kernel,
    params: &'a Params<'a>,
    pub(super) program: Program,
    labels: Vec<Option<u32>>,
}

pub(super) type Out<T> = Result<T, String>;

/// On failure: the statement and the reason.
pub(super) fn decode(
    kernel: &Kernel,
    params: &Params<'_>,
    dynamic_shared: u32,
) -> Result<Program, (usize, String)> {
    let mut program = Program {
        narrow: kernel.regs[Class::B16.place()] + kernel.regs[Class::B32.place()],
        wide: kernel.regs[Class::B64.place()],
        preds: kernel.regs[Class::Pred.place()],
        grain: 4,
        ..Program::default()
    };
    place_shared(kernel, dynamic_shared, &mut program);
    let labels = vec![None; kernel.labels as usize];
    let mut d = Decoder { kernel, params, program, labels };
    for (number, stmt) in kernel.body.iter().enumerate() {
        match stmt {
            Stmt::Inst { guard, inst } => {
                let guard = d.guard(*guard).map_err(|m| (number, m))?;
                let first = d.program.steps.len();
                d.inst(inst).map_err(|m| (number, m))?;
                for step in &mut d.program.steps[first..] {
                    step.guard = guard;
                }
                d.program.origin.resize(d.program.steps.len(), number as u32);
            }
            Stmt::Label(label) => {
                let here = d.program.steps.len() as u32;
                match d.labels.get_mut(label.0 as usize) {
                    Some(slot) => *slot = Some(here),
                    None => return Err((number, format!("label {} is not declared", label.0))),
                }
            }
            Stmt::Place { .. } | Stmt::Note(_) => {}
        }
    }
    // Control that runs off the end returns.
    d.emit(Op::Ret);
    d.program.origin.push(kernel.body.len() as u32);
    for (step, &stmt) in d.program.steps.iter_mut().zip(&d.program.origin) {
        if let Op::Bra { to } = &mut step.op {
            let place = d.labels.get(*to as usize).copied().flatten();
            *to = place.ok_or_else(|| (stmt as usize, format!("label {to} stands nowhere")))?;
        }
    }
    d.watch();
    Ok(d.program)
}

fn place_shared(kernel: &Kernel, dynamic: u32, program: &mut Program) {
    let mut at = 0u32;
    for var in &kernel.shared {
        at = at.next_multiple_of(var.align.max(1));
        program.shared.insert(var.name.clone(), at);
        at += var.bytes;
    }
    if dynamic > 0 {
        at = at.next_multiple_of(DYNAMIC_ALIGN);
        program.shared.insert(DYNAMIC_SHARED.to_string(), at);
        at += dynamic;
    }
    program.shared_bytes = at;
}

impl Decoder<'_> {
    fn emit(&mut self, op: Op) {
        self.program.steps.push(Step { watched: false, guard: ALWAYS, op });
    }

    pub(super) fn reg(&self, r: Reg) -> Out<Slot> {
        if r.id >= self.kernel.regs[r.class.place()] {
            return Err(format!("register {} of {:?} is not declared", r.id, r.class));
        }
        Ok(match r.class {
            Class::Pred => Slot::P(r.id),
            Class::B16 => Slot::N(r.id),
            Class::B32 => Slot::N(self.kernel.regs[Class::B16.place()] + r.id),
            Class::B64 => Slot::W(r.id),
        })
    }

    pub(super) fn pred(&self, r: Reg) -> Out<u32> {
        match self.reg(r)? {
            Slot::P(p) => Ok(p),
            Slot::N(_) | Slot::W(_) => Err("expected a predicate".to_string()),
        }
    }

    fn guard(&self, guard: Option<Guard>) -> Out<u32> {
        guard.map_or(Ok(ALWAYS), |g| Ok(self.pred(g.reg)? << 1 | g.negated as u32))
    }

    /// An operand as a row of `class`; constants get a row of their own.
    pub(super) fn opnd(&mut self, class: Class, o: Opnd) -> Out<Slot> {
        let bits = match o {
            Opnd::Reg(r) => {
                return if r.class == class {
                    self.reg(r)
                } else {
                    Err(format!("expected a register of {class:?}, got {:?}", r.class))
                };
            }
            Opnd::Special(s) => return self.special(s, class),
            Opnd::Int(v) => v as u64,
            Opnd::F32(bits) => bits as u64,
            Opnd::F64(bits) => bits,
        };
        Ok(self.constant(class, bits))
    }

    fn constant(&mut self, class: Class, bits: u64) -> Slot {
        let p = &mut self.program;
        match class {
            Class::Pred => Slot::P(*p.pred_consts.entry(bits & 1 != 0).or_insert_with(|| {
                p.preds += 1;
                p.preds - 1
            })),
            Class::B64 => Slot::W(*p.wide_consts.entry(bits).or_insert_with(|| {
                p.wide += 1;
                p.wide - 1
            })),
            Class::B16 | Class::B32 => {
                let bits = if class == Class::B16 { bits as u16 as u32 } else { bits as u32 };
                Slot::N(*p.narrow_consts.entry(bits).or_insert_with(|| {
                    p.narrow += 1;
                    p.narrow - 1
                }))
            }
        }
    }

    fn special(&mut self, s: Special, class: Class) -> Out<Slot> {
        let p = &mut self.program;
        let wide = matches!(s, Special::Clock64 | Special::GlobalTimer);
        if class != if wide { Class::B64 } else { Class::B32 } {
            return Err(format!("{s:?} is not read as {class:?}"));
        }
        if wide {
            // Clocks are read when the instruction executes, into a row of their own.
            p.wide += 1;
            let d = Slot::W(p.wide - 1);
            self.emit(Op::Clock { d });
            return Ok(d);
        }
        Ok(Slot::N(*p.specials.entry(s).or_insert_with(|| {
            p.narrow += 1;
            p.narrow - 1
        })))
    }

    pub(super) fn result(&self, class: Class, d: Reg) -> Out<Slot> {
        if d.class != class {
            return Err(format!("expected a result of {class:?}, got {:?}", d.class));
        }
        self.reg(d)
    }

    pub(super) fn regs(&self, class: Class, rs: &[Reg]) -> Out<Box<[Slot]>> {
        rs.iter().map(|r| self.result(class, *r)).collect()
    }

    pub(super) fn at(&self, addr: &Addr) -> Out<Where> {
        Ok(match &addr.base {
            Base::Reg(r) => match self.reg(*r)? {
                Slot::P(_) => return Err("a predicate is no address".to_string()),
                base => Where { base: Some(base), offset: addr.offset },
            },
            Base::Name(name) => match self.program.shared.get(name) {
                Some(&at) => Where { base: None, offset: at as i64 + addr.offset },
                None => return Err(format!("no shared variable is called `{name}`")),
            },
            Base::None => Where { base: None, offset: addr.offset },
        })
    }

    /// Records the access granularity of shared memory.
    pub(super) fn grain(&mut self, space: Space, bytes: u32) {
        if matches!(space, Space::Shared | Space::SharedCluster) {
            self.program.grain = self.program.grain.min(bytes);
        }
    }

    fn inst(&mut self, inst: &Inst) -> Out<()> {
        let op = match inst {
            Inst::Mov { ty, d, a } => {
                let class = ty.in_register().class();
                Op::Mov { d: self.result(class, *d)?, a: self.opnd(class, *a)? }
            }
            Inst::Pack { d, parts } => self.pack(*d, parts)?,
            Inst::Unpack { parts, a } => self.unpack(parts, *a)?,
            Inst::AddressOf { d, name } => self.address_of(*d, name)?,
            Inst::Alu { op, ty, round, ftz, sat, d, a } => {
                let mods = Mods { round: *round, ftz: *ftz, sat: *sat };
                self.alu(AluSpec { op: *op, ty: *ty, mods }, *d, a)?
            }
            Inst::Cvt { d, to, a, b, from, round, ftz, sat } => {
                let mods = Mods { round: *round, ftz: *ftz, sat: *sat };
                let narrow = d.class == Class::B16;
                let spec = CvtSpec { to: *to, from: *from, mods, pair: b.is_some(), narrow };
                self.cvt(spec, *d, *a, *b)?
            }
            Inst::Setp { cmp, ty, ftz, d, a, b } => {
                let class = ty.class();
                let (d, a, b) = (self.pred(*d)?, self.opnd(class, *a)?, self.opnd(class, *b)?);
                match (fast::cmp(*cmp, *ty), a, b) {
                    (Some(f), Slot::N(a) | Slot::W(a), Slot::N(b) | Slot::W(b)) if !ftz => {
                        Op::CmpRow { f, d, a, b }
                    }
                    _ => Op::Cmp { cmp: *cmp, ty: *ty, ftz: *ftz, d, a, b },
                }
            }
            Inst::Selp { ty, d, a, b, p } => {
                let class = ty.in_register().class();
                let (a, b) = (self.opnd(class, *a)?, self.opnd(class, *b)?);
                Op::Select { d: self.result(class, *d)?, a, b, p: self.pred(*p)? }
            }
            Inst::Ld { space: Space::Param, ty, d, addr, .. }
                if matches!(addr.base, Base::Name(_)) =>
            {
                return self.load_param(*ty, d, addr);
            }
            Inst::Ld { space: Space::Param, .. } => {
                return Err("parameters are read by their names".to_string());
            }
            Inst::Ld { space, ty, d, addr, sem, .. } => {
                let regs: Out<Box<[Slot]>> = d.iter().map(|r| self.reg(*r)).collect();
                Op::Ld(self.access(*space, *ty, regs?, addr, *sem)?)
            }
            Inst::St { space, ty, a, addr, sem, .. } => {
                let regs: Out<Vec<Slot>> = a.iter().map(|o| self.stored(*ty, *o)).collect();
                Op::St(self.access(*space, *ty, regs?.into(), addr, *sem)?)
            }
            Inst::Atom { .. } | Inst::Red { .. } => self.atomic(inst)?,
            Inst::Shfl { .. }
            | Inst::Vote { .. }
            | Inst::Redux { .. }
            | Inst::Elect { .. }
            | Inst::WarpSync { .. }
            | Inst::Activemask { .. } => self.warp(inst)?,
            Inst::BarSync { id, count } => {
                if let Opnd::Int(n) = id {
                    bar(u32::try_from(*n).unwrap_or(u32::MAX))?;
                }
                Op::BarSync { id: self.opnd(Class::B32, *id)?, count: *count }
            }
            Inst::BarArrive { id, count } => {
                if let Opnd::Int(n) = id {
                    bar(u32::try_from(*n).unwrap_or(u32::MAX))?;
                }
                Op::BarArrive { id: self.opnd(Class::B32, *id)?, count: *count }
            }
            Inst::BarRedOr { id, d, p } => {
                Op::BarRedOr { id: bar(*id)?, d: self.pred(*d)?, p: self.pred(*p)? }
            }
            Inst::CpAsync { dst, src, bytes, src_bytes } => {
                if !matches!(bytes, 4 | 8 | 16) {
                    return Err(format!("cp.async copies 4, 8 or 16 bytes, not {bytes}"));
                }
                let src_bytes = src_bytes.map(|n| self.opnd(Class::B32, n)).transpose()?;
                Op::Copy { dst: self.at(dst)?, src: self.at(src)?, bytes: *bytes, src_bytes }
            }
            Inst::CpCommit => Op::CopyCommit,
            Inst::CpWait { groups } => Op::CopyWait { groups: *groups },
            Inst::Ldmatrix { d, trans, addr } => {
                matrices(d.len())?;
                let d = self.regs(Class::B32, d)?;
                Op::Ldmatrix { d, trans: *trans, at: self.at(addr)? }
            }
            Inst::Stmatrix { a, trans, addr } => {
                matrices(a.len())?;
                let a = self.regs(Class::B32, a)?;
                Op::Stmatrix { a, trans: *trans, at: self.at(addr)? }
            }
            Inst::Mma { row, d, a, b, c } => self.mma(*row, [d, a, b, c])?,
            Inst::Mapa { d, a, rank } => Op::Mapa {
                d: self.result(Class::B32, *d)?,
                a: self.result(Class::B32, *a)?,
                rank: self.opnd(Class::B32, *rank)?,
            },
            Inst::ClusterArrive { .. } => Op::ClusterArrive,
            Inst::ClusterWait { .. } => Op::ClusterWait,
            Inst::Bra { to, .. } => Op::Bra { to: to.0 },
            Inst::Ret => Op::Ret,
            Inst::Trap => Op::Trap,
            Inst::FenceProxyAsync => Op::FenceProxy,
            // Texts run on GPUs alone: what is emulated is compiled without them.
            Inst::Text { .. } => return Err("assembly text".into()),
            Inst::Fence { .. }
            | Inst::FenceProxyAsyncGlobal
            | Inst::FenceMbarInit
            | Inst::Nanosleep { .. }
            | Inst::Event { .. }
            | Inst::TmaPrefetch { .. }
            | Inst::BulkPrefetch { .. }
            | Inst::PrefetchMap { .. }
            | Inst::Prefetch { .. }
            | Inst::SetMaxRegs { .. }
            | Inst::GridWait
            | Inst::GridLaunchNext => Op::Nothing,
            Inst::MbarInit { .. }
            | Inst::MbarInval { .. }
            | Inst::MbarArrive { .. }
            | Inst::MbarArriveExpect { .. }
            | Inst::MbarExpect { .. }
            | Inst::MbarWait { .. } => self.mbarrier(inst)?,
            Inst::CpAsyncArrive { .. }
            | Inst::TmaLoad { .. }
            | Inst::TmaStore { .. }
            | Inst::TmaReduce { .. }
            | Inst::BulkLoad { .. }
            | Inst::BulkStore { .. }
            | Inst::BulkReduce { .. }
            | Inst::BulkSend { .. }
            | Inst::StAsync { .. }
            | Inst::RedAsync { .. } => Op::Bulk(Box::new(self.async_copy(inst)?)),
            Inst::BulkCommit => Op::BulkCommit,
            Inst::BulkWait { groups, .. } => Op::BulkWait { groups: *groups },
            Inst::Wgmma { .. } => self.group_mma(inst)?,
            Inst::WgmmaFence => Op::WgmmaFence,
            Inst::WgmmaCommit => Op::WgmmaCommit,
            Inst::WgmmaWait { groups } => Op::WgmmaWait { groups: *groups },
        };
        self.emit(op);
        Ok(())
    }

    fn pack(&mut self, d: Reg, parts: &[Reg]) -> Out<Op> {
        let class = parts.first().ok_or("nothing to pack")?.class;
        let bits = width(class);
        if bits == 1 || bits * parts.len() as u32 != width(d.class) {
            return Err(format!("{} parts of {class:?} do not make {:?}", parts.len(), d.class));
        }
        Ok(Op::Pack { d: self.reg(d)?, parts: self.regs(class, parts)?, bits })
    }

    fn unpack(&mut self, parts: &[Reg], a: Reg) -> Out<Op> {
        let class = parts.first().ok_or("nothing to unpack")?.class;
        let bits = width(class);
        if bits == 1 || bits * parts.len() as u32 != width(a.class) {
            return Err(format!("{:?} has not {} parts of {class:?}", a.class, parts.len()));
        }
        Ok(Op::Unpack { parts: self.regs(class, parts)?, a: self.reg(a)?, bits })
    }

    fn address_of(&mut self, d: Reg, name: &str) -> Out<Op> {
        if let Some(&at) = self.program.shared.get(name) {
            // Shared addresses contain the block's rank; it is added when the warp starts.
            let d = self.result(Class::B32, d)?;
            let a = self.constant(Class::B32, at as u64);
            let rank = self.special(Special::ClusterCtaRank, Class::B32)?;
            return Ok(Op::Mapa { d, a, rank });
        }
        let offset = self.params.offsets.get(name);
        let offset = *offset.ok_or_else(|| format!("nothing is called `{name}`"))?;
        let a = self.constant(Class::B64, self.params.address() + offset as u64);
        Ok(Op::Mov { d: self.result(Class::B64, d)?, a })
    }

    /// Parameters are constants of a launch.
    fn load_param(&mut self, ty: Ty, d: &[Reg], addr: &Addr) -> Out<()> {
        let Base::Name(name) = &addr.base else { return Ok(()) };
        let param = self.kernel.params.iter().find(|p| p.name == *name);
        let param = param.ok_or_else(|| format!("no parameter is called `{name}`"))?;
        let bytes = (ty.bits() / 8) as i64;
        let end = addr.offset + bytes * d.len() as i64;
        if addr.offset < 0 || end > param.bytes as i64 {
            return Err(format!("`{name}` has {} bytes, not {end}", param.bytes));
        }
        if addr.offset % (bytes * d.len() as i64) != 0 {
            return Err(format!("byte {} of `{name}` is not aligned for this", addr.offset));
        }
        for (i, r) in d.iter().enumerate() {
            let from = self.params.offsets[name] as i64 + addr.offset + i as i64 * bytes;
            let mut word = [0; 8];
            let source = &self.params.bytes[from as usize..(from + bytes) as usize];
            word[..bytes as usize].copy_from_slice(source);
            let mut value = u64::from_le_bytes(word);
            if ty.is_signed() {
                value = alu::sign_extend(value, ty.bits()) as u64;
            }
            let a = self.constant(r.class, value);
            let d = self.reg(*r)?;
            self.emit(Op::Mov { d, a });
        }
        Ok(())
    }

    fn alu(&mut self, spec: AluSpec, d: Reg, a: &[Opnd]) -> Out<Op> {
        let AluSpec { op, ty, .. } = spec;
        let class = ty.class();
        if alu::arity(op, ty) != Some(a.len()) {
            return Err(format!("{op:?} is no operation of {} operands of {ty:?}", a.len()));
        }
        if class == Class::Pred {
            return self.pred_op(op, d, a);
        }
        let to = match op {
            Alu::MulWide | Alu::MadWide => match class {
                Class::B16 => Class::B32,
                Class::B32 => Class::B64,
                Class::B64 | Class::Pred => return Err(format!("{op:?} of {ty:?}")),
            },
            Alu::Popc | Alu::Clz => Class::B32,
            _ => class,
        };
        let slots: Out<Vec<Slot>> = (a.iter().enumerate())
            .map(|(i, o)| {
                let amount = match op {
                    Alu::Shl | Alu::Shr => i == 1,
                    Alu::Bfe => i >= 1,
                    Alu::Bfi => i >= 2,
                    _ => false,
                };
                let class = match op {
                    _ if amount => Class::B32,
                    Alu::MadWide if i == 2 => to,
                    _ => class,
                };
                self.opnd(class, *o)
            })
            .collect();
        let (slots, d) = (slots?, self.result(to, d)?);
        if let Alu::AddCc | Alu::Addc = op {
            let carry = op == Alu::Addc;
            if class == Class::B16 {
                return Err("carries are of 32 or 64 bits".to_string());
            }
            return Ok(Op::Carry { from: carry, to: !carry, d, a: slots[0], b: slots[1] });
        }
        let index = |i: usize| match slots.get(i) {
            Some(Slot::N(r) | Slot::W(r) | Slot::P(r)) => *r,
            None => 0,
        };
        if let Some(f) = fast::alu(spec) {
            let (Slot::N(d) | Slot::W(d) | Slot::P(d)) = d;
            return Ok(Op::Row { f, d, a: index(0), b: index(1), c: index(2) });
        }
        let mut a = [slots[0]; 4];
        a[..slots.len()].copy_from_slice(&slots);
        Ok(Op::Alu { spec, d, a: Box::new(a) })
    }

    fn pred_op(&mut self, op: Alu, d: Reg, a: &[Opnd]) -> Out<Op> {
        let mut slots = Vec::new();
        for o in a {
            match self.opnd(Class::Pred, *o)? {
                Slot::P(p) => slots.push(p),
                Slot::N(_) | Slot::W(_) => return Err("expected a predicate".to_string()),
            }
        }
        let b = *slots.get(1).unwrap_or(&slots[0]);
        Ok(Op::Pred { op, d: self.pred(d)?, a: slots[0], b })
    }

    fn cvt(&mut self, spec: CvtSpec, d: Reg, a: Opnd, b: Option<Opnd>) -> Out<Op> {
        if !cvt::exists(spec) {
            return Err(format!("no conversion from {:?} to {:?}", spec.from, spec.to));
        }
        // Integers may be in wider registers than their type, and results too.
        let slot = |this: &mut Self, o: Opnd| match o {
            Opnd::Reg(r) if width(r.class) >= spec.from.bits() && r.class != Class::Pred => {
                this.reg(r)
            }
            Opnd::Reg(r) => Err(format!("{:?} holds no {:?}", r.class, spec.from)),
            _ => this.opnd(spec.from.class(), o),
        };
        let a = slot(self, a)?;
        let b = match b {
            Some(b) => slot(self, b)?,
            None => a,
        };
        if width(d.class) < spec.to.bits() || d.class == Class::Pred {
            return Err(format!("{:?} holds no {:?}", d.class, spec.to));
        }
        let exact = d.class == spec.to.class() && spec.to.bits() >= 16;
        let (d, slot_of_a) = (self.reg(d)?, a);
        match (fast::cvt(spec), d, a) {
            (Some(f), Slot::N(d) | Slot::W(d), Slot::N(a) | Slot::W(a))
                if exact && matches!(slot_of_a, Slot::W(_)) == (spec.from.bits() == 64) =>
            {
                Ok(Op::Row { f, d, a, b: 0, c: 0 })
            }
            _ => Ok(Op::Cvt { spec, d, a, b }),
        }
    }

    /// A stored value may be in a wider register than its type.
    pub(super) fn stored(&mut self, ty: Ty, o: Opnd) -> Out<Slot> {
        match o {
            Opnd::Reg(r) if width(r.class) >= ty.bits() && r.class != Class::Pred => self.reg(r),
            Opnd::Reg(r) => Err(format!("{:?} holds no {ty:?}", r.class)),
            _ => self.opnd(ty.class(), o),
        }
    }

    fn access(
        &mut self,
        space: Space,
        ty: Ty,
        regs: Box<[Slot]>,
        addr: &Addr,
        sem: Sem,
    ) -> Out<Box<Access>> {
        if !matches!(regs.len(), 1 | 2 | 4 | 8) || ty.bits() < 8 {
            return Err(format!("no access has {} numbers of {ty:?}", regs.len()));
        }
        if space == Space::Local {
            return Err("local memory is used, and a kernel declares none".to_string());
        }
        let bytes = ty.bits() / 8;
        let held = |s: &Slot| match s {
            Slot::N(_) => 4,
            Slot::W(_) => 8,
            Slot::P(_) => 0,
        };
        if regs.iter().any(|s| held(s) < bytes) {
            return Err(format!("a register is too narrow for {ty:?}"));
        }
        self.grain(space, bytes);
        let at = self.at(addr)?;
        let strong = sem != Sem::Weak;
        let (signed, halves) = (ty.is_signed(), self.kernel.regs[Class::B16.place()]);
        Ok(Box::new(Access { space, bytes, signed, at, regs, strong, halves }))
    }
}

fn bar(id: u32) -> Out<u32> {
    if id < 16 { Ok(id) } else { Err(format!("there is no barrier {id}, only 0 to 15")) }
}

fn matrices(n: usize) -> Out<()> {
    if matches!(n, 1 | 2 | 4) {
        Ok(())
    } else {
        Err(format!("expected 1, 2 or 4 matrices, got {n}"))
    }
}

pub(super) fn width(class: Class) -> u32 {
    match class {
        Class::Pred => 1,
        Class::B16 => 16,
        Class::B32 => 32,
        Class::B64 => 64,
    }
}
