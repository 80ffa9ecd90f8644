//! Verifies a module for its target. An error here is a compiler bug, never the user's.
//!
//! Checked: forms exist (`legal`) and the target and the version have them; registers are declared
//! and have the width of their use; guards are predicates, and no collective instruction is
//! guarded; labels are placed once; constants are in range; names exist and accesses by name are in
//! bounds and aligned; registers have values before they are read (`flow`); sizes fit the target.
//! Not checked: alignment and bounds of computed addresses; that all threads reach a barrier.

use crate::caps::{MAX_PARAM_BYTES, MAX_REGISTERS, MAX_STATIC_SHARED, MAX_THREADS, PtxCaps};
use crate::flow;
use crate::inst::*;
use crate::legal::{kernel_requires, requires};
use crate::module::*;
use crate::operands::{Role, alu_classes};
use crate::print::Guarded;
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, SourceFile};
use tessera_tile::ops::asm::Piece;

/// All errors of a module.
pub fn verify(module: &Module) -> Result<(), Diagnostics> {
    let mut errors = Diagnostics::new();
    let Some(caps) = PtxCaps::of(module.target.sm, module.target.exact) else {
        let message = format!("expected a known target, got {}", module.target);
        return Err(Diagnostic::new(Code::E_UNKNOWN, message).into());
    };
    let needed = module.minimum_version();
    if module.version < needed {
        let got = module.version;
        let message = format!("expected PTX {needed} or later for this code, got {got}");
        errors.push(Diagnostic::new(Code::E_UNKNOWN, message));
    }
    let mut names = BTreeSet::new();
    for kernel in &module.kernels {
        let mut check = Check { module, kernel, caps, place: None, errors: &mut errors };
        if !names.insert(&kernel.name) {
            check.wrong("expected kernels of different names");
        }
        check.kernel();
        check.body();
    }
    errors.into_result().map(|_| ())
}

struct Check<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    caps: &'a PtxCaps,
    /// The current statement, in the kernel's body.
    place: Option<usize>,
    errors: &'a mut Diagnostics,
}

impl Check<'_> {
    fn wrong(&mut self, what: impl Into<String>) {
        let mut message = format!("kernel `{}`: {}", self.kernel.name, what.into());
        if let Some(Stmt::Inst { guard, inst }) = self.place.map(|p| &self.kernel.body[p]) {
            message += &format!(", in `{}`", Guarded { guard: *guard, inst });
        }
        self.errors.push(Diagnostic::new(Code::E_UNKNOWN, message).at(self.loc()));
    }

    fn expect(&mut self, good: bool, what: impl FnOnce() -> String) {
        if !good {
            self.wrong(what());
        }
    }

    /// The source location of the current statement.
    fn loc(&self) -> Loc {
        let before = self.place.map_or(&[][..], |p| &self.kernel.body[..p]);
        let place = before.iter().rev().find_map(|s| match s {
            Stmt::Place { file, line, column } => Some((*file, *line, *column)),
            _ => None,
        });
        let Some((file, line, column)) = place else { return Loc::unknown() };
        let name = (file as usize).checked_sub(1).and_then(|n| self.module.files.get(n));
        let Some(name) = name else { return Loc::unknown() };
        Loc::span(&SourceFile::new(name, "", 1), line, column, line, column + 1)
    }

    fn kernel(&mut self) {
        let (kernel, caps) = (self.kernel, self.caps);
        let in_range = (1..=MAX_THREADS).contains(&kernel.threads);
        self.expect(in_range, || {
            format!("expected 1 to {MAX_THREADS} threads, got {}", kernel.threads)
        });
        self.expect((1..=caps.gpu.max_cluster.max(1)).contains(&kernel.cluster), || {
            let (most, got) = (caps.gpu.max_cluster, kernel.cluster);
            format!("expected clusters of at most {most} blocks, got {got}")
        });
        if let Some(blocks) = kernel.min_blocks {
            let fits = blocks <= caps.gpu.blocks_per_sm
                && blocks * kernel.threads <= caps.gpu.threads_per_sm
                && blocks > 0;
            self.expect(fits, || {
                format!("expected a number of blocks that fit on a multiprocessor, got {blocks}")
            });
        }
        if let Some(registers) = kernel.max_registers {
            self.expect((1..=MAX_REGISTERS).contains(&registers), || {
                format!("expected at most {MAX_REGISTERS} registers, got {registers}")
            });
        }
        let fixed: u32 = kernel.shared.iter().map(|v| v.bytes).sum();
        self.expect(fixed <= MAX_STATIC_SHARED, || {
            format!(
                "expected at most {MAX_STATIC_SHARED} bytes of fixed shared memory, got {fixed}"
            )
        });
        let (most, all) = (caps.gpu.shared_per_block, kernel.shared_bytes());
        self.expect(all <= most, || {
            format!("expected at most {most} bytes of shared memory, got {all}")
        });
        let bytes: u32 = kernel.params.iter().map(|p| p.bytes).sum();
        self.expect(bytes <= MAX_PARAM_BYTES.1, || {
            format!("expected at most {} bytes of parameters, got {bytes}", MAX_PARAM_BYTES.1)
        });
        for feature in kernel_requires(kernel) {
            self.expect(caps.has(feature), || {
                format!("expected a target with {}, got {}", feature.name(), caps.target)
            });
        }
        self.names();
    }

    fn names(&mut self) {
        let kernel = self.kernel;
        let params = kernel.params.iter().map(|p| (&p.name, p.bytes, p.align));
        let shared = kernel.shared.iter().map(|v| (&v.name, v.bytes, v.align));
        let mut seen = BTreeSet::from([DYNAMIC_SHARED]);
        for (name, bytes, align) in params.chain(shared) {
            self.expect(is_name(name), || format!("expected a name, got `{name}`"));
            self.expect(seen.insert(name), || {
                format!("expected different names, got `{name}` twice")
            });
            let good = bytes > 0 && align.is_power_of_two();
            self.expect(good, || {
                format!("expected bytes and a power of two, got `{name}` of {bytes} at {align}")
            });
        }
        self.expect(is_name(&kernel.name), || "expected a name for the kernel".to_string());
    }

    fn body(&mut self) {
        let body = &self.kernel.body;
        let mut placed = BTreeSet::new();
        for (place, stmt) in body.iter().enumerate() {
            self.place = Some(place);
            match stmt {
                Stmt::Label(label) => {
                    let known = label.0 < self.kernel.labels;
                    self.expect(known && placed.insert(*label), || {
                        format!("expected a label once, got {label} again or from elsewhere")
                    });
                }
                Stmt::Place { file, .. } => {
                    let known = (1..=self.module.files.len()).contains(&(*file as usize));
                    self.expect(known, || format!("expected a file of the module, got {file}"));
                }
                Stmt::Inst { guard, inst } => self.inst(*guard, inst),
                Stmt::Note(_) => {}
            }
        }
        for (place, stmt) in body.iter().enumerate() {
            if let Stmt::Inst { inst: Inst::Bra { to, .. }, .. } = stmt {
                self.place = Some(place);
                self.expect(placed.contains(to), || format!("expected {to} to be placed"));
            }
        }
        let (undefined, runs_out) = flow::undefined(self.kernel);
        for (place, reg) in undefined {
            self.place = Some(place);
            self.wrong(format!("expected {reg} to have a value on every path here"));
        }
        self.place = None;
        self.expect(!runs_out, || "expected the code to return, got its end".to_string());
    }

    fn inst(&mut self, guard: Option<Guard>, inst: &Inst) {
        if let Some(g) = guard {
            self.register(g.reg, Class::Pred);
            let together = is_collective(inst);
            self.expect(!together, || "expected what threads do together without a guard".into());
        }
        match requires(inst) {
            Err(why) => self.wrong(why),
            Ok(needs) => {
                for feature in needs {
                    let target = self.module.target;
                    self.expect(feature.on().has(target), || {
                        format!("expected a target with {}, got {target}", feature.name())
                    });
                }
            }
        }
        if let Inst::Alu { op, ty, a, .. } = inst {
            let expected = alu_classes(*op, *ty).0.len();
            self.expect(a.len() == expected, || {
                format!("expected {expected} operands, got {}", a.len())
            });
        }
        for operand in inst.operands() {
            match operand.what {
                Opnd::Reg(reg) => self.register(reg, operand.class),
                Opnd::Special(s) => {
                    let good = matches!(inst, Inst::Mov { .. }) && s.ty().class() == operand.class;
                    self.expect(good, || format!("expected {} only in a move", s.spelling()));
                }
                Opnd::Int(_) | Opnd::F32(_) | Opnd::F64(_) => {
                    self.expect(operand.role == Role::Read, || "expected a register".into());
                    let (what, class) = (operand.what, operand.class);
                    self.expect(constant_fits(inst, what, class), || {
                        format!("expected a constant that fits, got {what:?}")
                    });
                }
            }
        }
        self.numbers(inst);
        let widths = widths(inst);
        for ((space, addr), (bytes, align)) in inst.addresses().into_iter().zip(widths) {
            self.address(space, addr, bytes, align);
        }
        if let Inst::AddressOf { d, name } = inst {
            let space = if d.class == Class::B64 { Space::Param } else { Space::Shared };
            let known = self.variable(space, name).is_some();
            self.expect(known, || format!("expected a variable, got `{name}`"));
        }
    }

    fn register(&mut self, reg: Reg, class: Class) {
        let declared = self.kernel.regs[reg.class.place()];
        self.expect(reg.id < declared, || format!("expected a declared register, got {reg}"));
        self.expect(reg.class == class, || {
            format!("expected a register of {} where {reg} is", class.spelling())
        });
    }

    /// Immediate fields of the instruction, and constants with a range of their own.
    fn numbers(&mut self, inst: &Inst) {
        let known = |o: &Opnd| match o {
            Opnd::Int(v) => Some(*v),
            Opnd::F32(bits) => Some(i64::from(*bits)),
            Opnd::F64(bits) => Some(*bits as i64),
            Opnd::Reg(_) | Opnd::Special(_) => None,
        };
        let within = |o: &Opnd, range: std::ops::RangeInclusive<i64>| {
            known(o).is_none_or(|v| range.contains(&v))
        };
        let threads = self.kernel.threads;
        let good = match inst {
            Inst::Alu { op: Alu::Shl | Alu::Shr, ty, a, .. } => {
                a.get(1).is_none_or(|n| within(n, 0..=i64::from(ty.bits()) - 1))
            }
            Inst::Alu { op: Alu::Bfe | Alu::Bfi, ty, a, .. } => {
                a.iter().rev().take(2).all(|n| within(n, 0..=i64::from(ty.bits())))
            }
            Inst::Alu { op: Alu::Prmt, a, .. } => a.get(2).is_none_or(|n| within(n, 0..=0xffff)),
            Inst::Shfl { b, c, .. } => within(b, 0..=31) && within(c, 0..=0x1f1f),
            Inst::BarSync { id, count } => {
                within(id, 0..=15) && count.is_none_or(|n| n % 32 == 0 && n > 0 && n <= threads)
            }
            Inst::BarArrive { id, count } => {
                within(id, 0..=15) && count % 32 == 0 && *count <= threads
            }
            Inst::BarRedOr { id, .. } => *id < 16,
            Inst::CpAsync { bytes, src_bytes: Some(n), .. } => within(n, 0..=i64::from(*bytes)),
            Inst::WgmmaWait { groups } => *groups < 8,
            Inst::Nanosleep { ns } => *ns <= 1_000_000,
            Inst::Text { pieces, d, a } => pieces.iter().all(|p| match p {
                Piece::Register(n) => *n < d.len() + a.len(),
                Piece::Text(_) => true,
            }),
            Inst::Event { number } => *number < 16,
            Inst::MbarInit { count, .. } => within(count, 1..=(1 << 20) - 1),
            Inst::MbarArriveExpect { bytes, .. } | Inst::MbarExpect { bytes, .. } => {
                within(bytes, 0..=(1 << 20) - 1)
            }
            Inst::MbarWait { parity, .. } => within(parity, 0..=1),
            Inst::BulkLoad { bytes, .. }
            | Inst::BulkStore { bytes, .. }
            | Inst::BulkReduce { bytes, .. }
            | Inst::BulkSend { bytes, .. }
            | Inst::BulkPrefetch { bytes, .. } => {
                known(bytes).is_none_or(|v| v > 0 && v % 16 == 0 && v < 1 << 32)
            }
            Inst::SetMaxRegs { count, .. } => {
                let fixed = self.kernel.min_blocks.or(self.kernel.max_registers).is_some();
                (24..=256).contains(count) && count % 8 == 0 && fixed
            }
            _ => true,
        };
        self.expect(good, || "expected numbers in range".to_string());
    }

    /// Bytes and alignment of a variable.
    fn variable(&self, space: Space, name: &str) -> Option<(u32, u32)> {
        let kernel = self.kernel;
        match space {
            Space::Param => {
                let param = kernel.params.iter().find(|p| p.name == name)?;
                Some((param.bytes, param.align))
            }
            Space::Shared | Space::SharedCluster if name == DYNAMIC_SHARED => {
                (kernel.dynamic_shared > 0).then_some((kernel.dynamic_shared, DYNAMIC_ALIGN))
            }
            Space::Shared | Space::SharedCluster => {
                let var = kernel.shared.iter().find(|v| v.name == name)?;
                Some((var.bytes, var.align))
            }
            Space::Global | Space::Local => None,
        }
    }

    fn address(&mut self, space: Space, addr: &Addr, bytes: u32, align: u32) {
        let offset = addr.offset;
        let in_range = i32::try_from(offset).is_ok();
        self.expect(in_range, || format!("expected an offset of 32 bits, got {offset}"));
        match &addr.base {
            // Its register was checked with the others.
            Base::Reg(_) => {
                let good = space != Space::Param;
                self.expect(good, || "expected a parameter by its name".to_string());
            }
            Base::None => self.wrong("expected a register or a name in an address"),
            Base::Name(name) => match self.variable(space, name) {
                None => self.wrong(format!("expected a variable, got `{name}`")),
                Some((size, aligned)) => {
                    let inside = offset >= 0 && offset + i64::from(bytes) <= i64::from(size);
                    self.expect(inside, || {
                        format!("expected an access inside the {size} bytes of `{name}`")
                    });
                    let good = aligned % align == 0 && offset % i64::from(align) == 0;
                    self.expect(good, || {
                        format!("expected `{name}` and its offset to be aligned to {align} bytes")
                    });
                }
            },
        }
    }
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether it is collective: all threads of a warp or block must execute it.
fn is_collective(inst: &Inst) -> bool {
    match inst {
        // A mask in a register says which lanes take part.
        Inst::Shfl { mask, .. }
        | Inst::Vote { mask, .. }
        | Inst::Redux { mask, .. }
        | Inst::WarpSync { mask }
        | Inst::Elect { mask, .. } => !matches!(mask, Opnd::Reg(_)),
        Inst::BarSync { .. }
        | Inst::BarArrive { .. }
        | Inst::BarRedOr { .. }
        | Inst::ClusterArrive { .. }
        | Inst::ClusterWait { .. }
        | Inst::Ldmatrix { .. }
        | Inst::Stmatrix { .. }
        | Inst::Mma { .. }
        | Inst::Wgmma { .. }
        | Inst::WgmmaFence
        | Inst::WgmmaCommit
        | Inst::WgmmaWait { .. }
        | Inst::SetMaxRegs { .. } => true,
        // A guard is of one instruction, and a text may be several.
        Inst::Text { .. } => true,
        _ => false,
    }
}

/// Whether a constant may be used where an instruction reads a register of this width.
pub fn constant_fits(inst: &Inst, what: Opnd, class: Class) -> bool {
    match (what, constant_type(inst)) {
        (Opnd::Reg(_) | Opnd::Special(_), _) => true,
        (_, None) => false,
        (Opnd::F32(_), Some(ty)) => matches!(ty, Ty::F32 | Ty::B32) && class == Class::B32,
        (Opnd::F64(_), Some(ty)) => matches!(ty, Ty::F64 | Ty::B64) && class == Class::B64,
        (Opnd::Int(v), Some(_)) => match class {
            Class::Pred => v == 0 || v == 1,
            Class::B16 => (-(1 << 15)..1 << 16).contains(&v),
            Class::B32 => (-(1 << 31)..1 << 32).contains(&v),
            Class::B64 => true,
        },
    }
}

/// The type of constants among an instruction's operands, where they are allowed.
fn constant_type(inst: &Inst) -> Option<Ty> {
    let ty = match inst {
        Inst::Mov { ty, .. } | Inst::Selp { ty, .. } => ty.in_register(),
        Inst::St { ty, .. } | Inst::StAsync { ty, .. } => ty.in_memory(),
        Inst::Alu { op, ty, .. } => op.spelling(*ty).2,
        Inst::Setp { ty, .. } => *ty,
        Inst::Cvt { from, .. } => *from,
        Inst::Atom { op, ty, .. } | Inst::Red { op, ty, .. } | Inst::RedAsync { op, ty, .. } => {
            op.with_type(*ty).1
        }
        Inst::Redux { ty, .. } => *ty,
        _ => Ty::B32,
    };
    let known = matches!(ty, Ty::F32 | Ty::F64 | Ty::Pred) || ty.is_integer() || ty.untyped() == ty;
    known.then_some(ty)
}

/// Bytes and alignment of what each of [`Inst::addresses`] accesses.
fn widths(inst: &Inst) -> Vec<(u32, u32)> {
    let bytes = |ty: Ty, n: usize| ty.in_memory().bits() / 8 * n as u32;
    let run = |o: &Opnd| if let Opnd::Int(v) = o { u32::try_from(*v).unwrap_or(0) } else { 0 };
    let same = |n: u32| vec![(n, n)];
    const BARRIER: (u32, u32) = (8, 8);
    match inst {
        Inst::Ld { ty, d: items, .. } => same(bytes(*ty, items.len())),
        Inst::St { ty, a: items, .. } | Inst::Red { ty, a: items, .. } => {
            same(bytes(*ty, items.len()))
        }
        Inst::Atom { ty, .. } => same(bytes(*ty, 1)),
        Inst::CpAsync { bytes, .. } => vec![(*bytes, *bytes); 2],
        Inst::Ldmatrix { .. } | Inst::Stmatrix { .. } => same(16),
        Inst::MbarInit { .. }
        | Inst::MbarInval { .. }
        | Inst::MbarArrive { .. }
        | Inst::MbarArriveExpect { .. }
        | Inst::MbarExpect { .. }
        | Inst::MbarWait { .. }
        | Inst::CpAsyncArrive { .. } => vec![BARRIER],
        Inst::TmaLoad { .. } => vec![(0, 128), BARRIER],
        Inst::TmaStore { .. } | Inst::TmaReduce { .. } => vec![(0, 128)],
        Inst::BulkLoad { bytes, .. } | Inst::BulkSend { bytes, .. } => {
            vec![(run(bytes), 16), (run(bytes), 16), BARRIER]
        }
        Inst::BulkStore { bytes, .. } | Inst::BulkReduce { bytes, .. } => {
            vec![(run(bytes), 16); 2]
        }
        Inst::BulkPrefetch { bytes, .. } => vec![(run(bytes), 16)],
        Inst::StAsync { ty, a, .. } => vec![(bytes(*ty, a.len()), bytes(*ty, a.len())), BARRIER],
        Inst::RedAsync { ty, .. } => vec![(bytes(*ty, 1), bytes(*ty, 1)), BARRIER],
        _ => vec![(0, 1); inst.addresses().len()],
    }
}
