//! What an instruction reads and writes, and the width of each register: one table for the verifier
//! and every analysis.

use crate::inst::*;
use crate::module::Guard;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    Read,
    Write,
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Operand {
    pub role: Role,
    pub what: Opnd,
    /// The width that a register here must have.
    pub class: Class,
    /// It is read only where this holds (beyond the instruction's own guard).
    pub when: Option<Guard>,
}

impl Inst {
    pub fn reads(&self) -> Vec<Reg> {
        self.registers(Role::Read)
    }

    pub fn writes(&self) -> Vec<Reg> {
        self.registers(Role::Write)
    }

    fn registers(&self, role: Role) -> Vec<Reg> {
        let all = self.operands().into_iter().filter(|o| o.role == role);
        all.filter_map(|o| if let Opnd::Reg(r) = o.what { Some(r) } else { None }).collect()
    }

    /// Every operand; registers of addresses too.
    pub fn operands(&self) -> Vec<Operand> {
        let mut out = Operands(Vec::new());
        out.of(self);
        out.0
    }

    /// Every address, with its memory space.
    pub fn addresses(&self) -> Vec<(Space, &Addr)> {
        match self {
            Inst::Ld { space, addr, .. }
            | Inst::St { space, addr, .. }
            | Inst::Atom { space, addr, .. }
            | Inst::Red { space, addr, .. }
            | Inst::MbarArrive { space, addr, .. }
            | Inst::MbarArriveExpect { space, addr, .. } => vec![(*space, addr)],
            Inst::CpAsync { dst, src, .. } => vec![(Space::Shared, dst), (Space::Global, src)],
            Inst::Ldmatrix { addr, .. }
            | Inst::Stmatrix { addr, .. }
            | Inst::MbarInit { addr, .. }
            | Inst::MbarInval { addr }
            | Inst::MbarExpect { addr, .. }
            | Inst::MbarWait { addr, .. }
            | Inst::CpAsyncArrive { addr } => vec![(Space::Shared, addr)],
            Inst::TmaLoad { dst, bar, .. } => vec![(Space::Shared, dst), (Space::Shared, bar)],
            Inst::TmaStore { src, .. } | Inst::TmaReduce { src, .. } => vec![(Space::Shared, src)],
            Inst::BulkLoad { dst, src, bar, .. } => {
                vec![(Space::Shared, dst), (Space::Global, src), (Space::Shared, bar)]
            }
            Inst::BulkStore { dst, src, .. } | Inst::BulkReduce { dst, src, .. } => {
                vec![(Space::Global, dst), (Space::Shared, src)]
            }
            Inst::BulkSend { dst, src, bar, .. } => {
                let cluster = Space::SharedCluster;
                vec![(cluster, dst), (Space::Shared, src), (cluster, bar)]
            }
            Inst::BulkPrefetch { src, .. } => vec![(Space::Global, src)],
            Inst::Prefetch { addr } => vec![(Space::Global, addr)],
            Inst::StAsync { addr, bar, .. } | Inst::RedAsync { addr, bar, .. } => {
                vec![(Space::SharedCluster, addr), (Space::SharedCluster, bar)]
            }
            Inst::Mov { .. }
            | Inst::Pack { .. }
            | Inst::Unpack { .. }
            | Inst::AddressOf { .. }
            | Inst::Alu { .. }
            | Inst::Cvt { .. }
            | Inst::Setp { .. }
            | Inst::Selp { .. }
            | Inst::Shfl { .. }
            | Inst::Vote { .. }
            | Inst::Redux { .. }
            | Inst::Activemask { .. }
            | Inst::BarSync { .. }
            | Inst::BarArrive { .. }
            | Inst::BarRedOr { .. }
            | Inst::WarpSync { .. }
            | Inst::Fence { .. }
            | Inst::FenceProxyAsync
            | Inst::FenceProxyAsyncGlobal
            | Inst::FenceMbarInit
            | Inst::CpCommit
            | Inst::CpWait { .. }
            | Inst::Mma { .. }
            | Inst::Mapa { .. }
            | Inst::ClusterArrive { .. }
            | Inst::ClusterWait { .. }
            | Inst::Bra { .. }
            | Inst::Ret
            | Inst::Trap
            | Inst::Nanosleep { .. }
            | Inst::Text { .. }
            | Inst::Event { .. }
            | Inst::TmaPrefetch { .. }
            | Inst::BulkCommit
            | Inst::BulkWait { .. }
            | Inst::PrefetchMap { .. }
            | Inst::Wgmma { .. }
            | Inst::WgmmaFence
            | Inst::WgmmaCommit
            | Inst::WgmmaWait { .. }
            | Inst::SetMaxRegs { .. }
            | Inst::Elect { .. }
            | Inst::GridWait
            | Inst::GridLaunchNext => Vec::new(),
        }
    }
}

impl Space {
    /// The width of its addresses.
    pub fn address_class(self) -> Class {
        match self {
            Space::Shared | Space::SharedCluster => Class::B32,
            Space::Global | Space::Param | Space::Local => Class::B64,
        }
    }
}

/// The widths of an operation's operands and of its result.
pub fn alu_classes(op: Alu, ty: Ty) -> (Vec<Class>, Class) {
    let (own, word) = (ty.class(), Class::B32);
    match op {
        Alu::Neg | Alu::Abs | Alu::Not | Alu::Sqrt | Alu::Rcp | Alu::Brev => (vec![own], own),
        Alu::SqrtApprox | Alu::RcpApprox | Alu::RsqrtApprox => (vec![own], own),
        Alu::Ex2Approx | Alu::Lg2Approx | Alu::SinApprox | Alu::CosApprox | Alu::TanhApprox => {
            (vec![own], own)
        }
        Alu::Popc | Alu::Clz => (vec![own], word),
        Alu::Add | Alu::AddCc | Alu::Addc | Alu::Sub | Alu::Mul | Alu::MulLo | Alu::MulHi => {
            (vec![own; 2], own)
        }
        Alu::Div | Alu::DivApprox | Alu::Rem | Alu::Min | Alu::Max | Alu::MinNan | Alu::MaxNan => {
            (vec![own; 2], own)
        }
        Alu::And | Alu::Or | Alu::Xor | Alu::CopySign => (vec![own; 2], own),
        Alu::MulWide => (vec![own; 2], wider(own)),
        Alu::MadLo | Alu::Fma | Alu::Lop3(_) => (vec![own; 3], own),
        Alu::MadWide => (vec![own, own, wider(own)], wider(own)),
        Alu::Shl | Alu::Shr => (vec![own, word], own),
        Alu::Bfe => (vec![own, word, word], own),
        Alu::Bfi => (vec![own, own, word, word], own),
        Alu::Prmt | Alu::ShfL | Alu::ShfR | Alu::Dp4a => (vec![word; 3], word),
    }
}

fn wider(class: Class) -> Class {
    if class == Class::B16 { Class::B32 } else { Class::B64 }
}

struct Operands(Vec<Operand>);

impl Operands {
    fn add(&mut self, role: Role, what: Opnd, class: Class) {
        self.0.push(Operand { role, what, class, when: None });
    }

    fn read(&mut self, what: impl Into<Opnd>, class: Class) {
        self.add(Role::Read, what.into(), class);
    }

    fn read_when(&mut self, what: Opnd, class: Class, reg: Reg, negated: bool) {
        let when = Some(Guard { reg, negated });
        self.0.push(Operand { role: Role::Read, what, class, when });
    }

    fn word(&mut self, what: impl Into<Opnd>) {
        self.read(what, Class::B32);
    }

    fn reads<T: Copy + Into<Opnd>>(&mut self, what: &[T], class: Class) {
        what.iter().for_each(|a| self.read(*a, class));
    }

    fn write(&mut self, d: Reg, class: Class) {
        self.add(Role::Write, Opnd::Reg(d), class);
    }

    fn writes(&mut self, d: &[Reg], class: Class) {
        d.iter().for_each(|d| self.write(*d, class));
    }

    /// The optional operands of a copy.
    fn extras(&mut self, multicast: &Option<Opnd>, hint: &Option<Reg>) {
        multicast.iter().for_each(|m| self.read(*m, Class::B16));
        hint.iter().for_each(|h| self.read(*h, Class::B64));
    }

    fn of(&mut self, inst: &Inst) {
        for (space, addr) in inst.addresses() {
            if let Base::Reg(r) = addr.base {
                self.read(r, space.address_class());
            }
        }
        match inst {
            Inst::Mov { ty, d, a } => {
                self.read(*a, ty.class());
                self.write(*d, ty.class());
            }
            Inst::Pack { d, parts } => {
                parts.iter().for_each(|p| self.read(*p, p.class));
                self.write(*d, d.class);
            }
            Inst::Unpack { parts, a } => {
                self.read(*a, a.class);
                parts.iter().for_each(|p| self.write(*p, p.class));
            }
            Inst::AddressOf { d, .. } => self.write(*d, d.class),
            Inst::Alu { op, ty, d, a, .. } => {
                let (reads, write) = alu_classes(*op, *ty);
                a.iter().zip(reads).for_each(|(a, class)| self.read(*a, class));
                self.write(*d, write);
            }
            Inst::Cvt { d, to, a, b, from, .. } => {
                self.read(*a, from.class());
                b.iter().for_each(|b| self.read(*b, from.class()));
                self.write(*d, to.class());
            }
            Inst::Setp { ty, d, a, b, .. } => {
                self.reads(&[*a, *b], ty.class());
                self.write(*d, Class::Pred);
            }
            Inst::Selp { ty, d, a, b, p } => {
                self.read(*p, Class::Pred);
                self.read_when(*a, ty.class(), *p, false);
                self.read_when(*b, ty.class(), *p, true);
                self.write(*d, ty.class());
            }
            Inst::Ld { ty, d, .. } => self.writes(d, ty.class()),
            Inst::St { ty, a, .. } | Inst::Red { ty, a, .. } | Inst::StAsync { ty, a, .. } => {
                self.reads(a, ty.class());
            }
            Inst::RedAsync { ty, a, .. } => self.read(*a, ty.class()),
            Inst::Atom { ty, d, a, b, .. } => {
                self.read(*a, ty.class());
                b.iter().for_each(|b| self.read(*b, ty.class()));
                self.write(*d, ty.class());
            }
            Inst::Shfl { d, ok, a, b, c, mask, .. } => {
                self.reads(&[*a, *b, *c, *mask], Class::B32);
                self.write(*d, Class::B32);
                ok.iter().for_each(|p| self.write(*p, Class::Pred));
            }
            Inst::Vote { kind, d, p, mask } => {
                self.read(p.reg, Class::Pred);
                self.word(*mask);
                let answer = if *kind == Vote::Ballot { Class::B32 } else { Class::Pred };
                self.write(*d, answer);
            }
            Inst::Redux { ty, d, a, mask, .. } => {
                self.read(*a, ty.class());
                self.word(*mask);
                self.write(*d, ty.class());
            }
            Inst::Activemask { d } => self.write(*d, Class::B32),
            Inst::BarRedOr { d, p, .. } => {
                self.read(*p, Class::Pred);
                self.write(*d, Class::Pred);
            }
            Inst::WarpSync { mask } => self.word(*mask),
            Inst::CpAsync { src_bytes, .. } => src_bytes.iter().for_each(|n| self.word(*n)),
            Inst::Ldmatrix { d, .. } => self.writes(d, Class::B32),
            Inst::Stmatrix { a, .. } => self.reads(a, Class::B32),
            Inst::Mma { row, d, a, b, c } => {
                let wide = |ty| if ty == Ty::F64 { Class::B64 } else { Class::B32 };
                self.reads(a, wide(row.a));
                self.reads(b, wide(row.b));
                self.reads(c, wide(row.c));
                self.writes(d, wide(row.c));
            }
            Inst::Mapa { d, a, rank } => {
                self.word(*a);
                self.word(*rank);
                self.write(*d, Class::B32);
            }
            Inst::MbarInit { count, .. } => self.word(*count),
            Inst::MbarArrive { count, .. } => count.iter().for_each(|n| self.word(*n)),
            Inst::MbarArriveExpect { bytes, .. } | Inst::MbarExpect { bytes, .. } => {
                self.word(*bytes);
            }
            Inst::MbarWait { d, parity, .. } => {
                self.word(*parity);
                self.write(*d, Class::Pred);
            }
            Inst::TmaLoad { map, coords, multicast, hint, .. } => {
                self.read(*map, Class::B64);
                self.reads(coords, Class::B32);
                self.extras(multicast, hint);
            }
            Inst::TmaStore { map, coords, hint, .. }
            | Inst::TmaReduce { map, coords, hint, .. } => {
                self.read(*map, Class::B64);
                self.reads(coords, Class::B32);
                self.extras(&None, hint);
            }
            Inst::TmaPrefetch { map, coords } => {
                self.read(*map, Class::B64);
                self.reads(coords, Class::B32);
            }
            Inst::BulkLoad { bytes, multicast, hint, .. } => {
                self.word(*bytes);
                self.extras(multicast, hint);
            }
            Inst::BulkStore { bytes, hint, .. } | Inst::BulkReduce { bytes, hint, .. } => {
                self.word(*bytes);
                self.extras(&None, hint);
            }
            Inst::BulkSend { bytes, .. } | Inst::BulkPrefetch { bytes, .. } => self.word(*bytes),
            Inst::PrefetchMap { map } => self.read(*map, Class::B64),
            Inst::Wgmma { d, a, b, add, .. } => {
                match a {
                    WgmmaA::Shared(a) => self.read(*a, Class::B64),
                    WgmmaA::Regs(a) => self.reads(a, Class::B32),
                }
                self.read(*b, Class::B64);
                self.read(*add, Class::Pred);
                match add {
                    Opnd::Int(0) => {}
                    Opnd::Reg(p) => {
                        d.iter().for_each(|d| {
                            self.read_when(Opnd::Reg(*d), Class::B32, *p, false);
                        });
                    }
                    _ => self.reads(d, Class::B32),
                }
                self.writes(d, Class::B32);
            }
            Inst::Elect { p, mask } => {
                self.word(*mask);
                self.write(*p, Class::Pred);
            }
            Inst::Text { d, a, .. } => {
                a.iter().for_each(|&r| self.read(r, r.class));
                d.iter().for_each(|&r| self.write(r, r.class));
            }
            Inst::BarSync { id, .. } | Inst::BarArrive { id, .. } => self.word(*id),
            Inst::Fence { .. }
            | Inst::FenceProxyAsync
            | Inst::FenceProxyAsyncGlobal
            | Inst::FenceMbarInit
            | Inst::CpCommit
            | Inst::CpWait { .. }
            | Inst::CpAsyncArrive { .. }
            | Inst::ClusterArrive { .. }
            | Inst::ClusterWait { .. }
            | Inst::Bra { .. }
            | Inst::Ret
            | Inst::Trap
            | Inst::Nanosleep { .. }
            | Inst::Event { .. }
            | Inst::MbarInval { .. }
            | Inst::BulkCommit
            | Inst::BulkWait { .. }
            | Inst::Prefetch { .. }
            | Inst::WgmmaFence
            | Inst::WgmmaCommit
            | Inst::WgmmaWait { .. }
            | Inst::SetMaxRegs { .. }
            | Inst::GridWait
            | Inst::GridLaunchNext => {}
        }
    }
}
