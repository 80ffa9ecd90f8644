//! PTX spellings of types, operations and modifiers.

use crate::inst::*;

impl Class {
    pub fn spelling(self) -> &'static str {
        match self {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
        }
    }

    /// The prefix of register names.
    pub fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "%p",
            Class::B16 => "%h",
            Class::B32 => "%r",
            Class::B64 => "%rd",
        }
    }
}

impl Ty {
    pub fn spelling(self) -> &'static str {
        match self {
            Ty::Pred => "pred",
            Ty::B8 => "b8",
            Ty::B16 => "b16",
            Ty::B32 => "b32",
            Ty::B64 => "b64",
            Ty::U8 => "u8",
            Ty::U16 => "u16",
            Ty::U32 => "u32",
            Ty::U64 => "u64",
            Ty::S8 => "s8",
            Ty::S16 => "s16",
            Ty::S32 => "s32",
            Ty::S64 => "s64",
            Ty::F16 => "f16",
            Ty::F16x2 => "f16x2",
            Ty::BF16 => "bf16",
            Ty::BF16x2 => "bf16x2",
            Ty::Tf32 => "tf32",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
            Ty::E4M3 => "e4m3",
            Ty::E5M2 => "e5m2",
            Ty::E4M3x2 => "e4m3x2",
            Ty::E5M2x2 => "e5m2x2",
            Ty::E2M1x2 => "e2m1x2",
            Ty::E2M3x2 => "e2m3x2",
            Ty::E3M2x2 => "e3m2x2",
            Ty::UE8M0x2 => "ue8m0x2",
            Ty::U4 => "u4",
            Ty::S4 => "s4",
            Ty::E2M1 => "e2m1",
            Ty::E2M3 => "e2m3",
            Ty::E3M2 => "e3m2",
        }
    }

    /// The untyped type of the same width.
    pub fn untyped(self) -> Ty {
        match self.bits() {
            1 => Ty::Pred,
            4 | 8 => Ty::B8,
            16 => Ty::B16,
            32 => Ty::B32,
            _ => Ty::B64,
        }
    }

    /// As loads and stores name it: formats without a name there are bits.
    pub(crate) fn in_memory(self) -> Ty {
        match self {
            Ty::F32 | Ty::F64 => self,
            _ if self.is_integer() => self,
            _ => self.untyped(),
        }
    }

    /// As `mov` and `selp` name it: those have no bytes either.
    pub fn in_register(self) -> Ty {
        match self.in_memory() {
            Ty::B8 | Ty::U8 | Ty::S8 => Ty::B16,
            ty => ty,
        }
    }

    pub fn is_integer(self) -> bool {
        self.is_signed() || matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64)
    }

    /// Bit types use unsigned arithmetic.
    fn unsigned(self) -> Ty {
        match self {
            Ty::B16 => Ty::U16,
            Ty::B32 => Ty::U32,
            Ty::B64 => Ty::U64,
            ty => ty,
        }
    }

    fn signed(self) -> Ty {
        match self.unsigned() {
            Ty::U16 => Ty::S16,
            Ty::U32 => Ty::S32,
            Ty::U64 => Ty::S64,
            ty => ty,
        }
    }
}

impl Alu {
    /// The operation, what follows the rounding and flushing modifiers, and the type it names.
    pub(crate) fn spelling(self, ty: Ty) -> (&'static str, &'static str, Ty) {
        let (name, after) = match self {
            Alu::Add => ("add", ""),
            Alu::AddCc => ("add.cc", ""),
            Alu::Addc => ("addc", ""),
            Alu::Sub => ("sub", ""),
            Alu::Mul => ("mul", ""),
            Alu::MulLo => ("mul.lo", ""),
            Alu::MulHi => ("mul.hi", ""),
            Alu::MulWide => ("mul.wide", ""),
            Alu::MadLo => ("mad.lo", ""),
            Alu::MadWide => ("mad.wide", ""),
            Alu::Fma => ("fma", ""),
            Alu::Div => ("div", ""),
            Alu::Rem => ("rem", ""),
            Alu::Neg => ("neg", ""),
            Alu::Abs => ("abs", ""),
            Alu::Min => ("min", ""),
            Alu::Max => ("max", ""),
            Alu::MinNan => ("min", ".NaN"),
            Alu::MaxNan => ("max", ".NaN"),
            Alu::And => ("and", ""),
            Alu::Or => ("or", ""),
            Alu::Xor => ("xor", ""),
            Alu::Not => ("not", ""),
            Alu::Shl => ("shl", ""),
            Alu::Shr => ("shr", ""),
            Alu::Sqrt => ("sqrt", ""),
            Alu::Rcp => ("rcp", ""),
            Alu::SqrtApprox => ("sqrt.approx", ""),
            Alu::RcpApprox => ("rcp.approx", ""),
            Alu::DivApprox => ("div.approx", ""),
            Alu::RsqrtApprox => ("rsqrt.approx", ""),
            Alu::Ex2Approx => ("ex2.approx", ""),
            Alu::Lg2Approx => ("lg2.approx", ""),
            Alu::SinApprox => ("sin.approx", ""),
            Alu::CosApprox => ("cos.approx", ""),
            Alu::TanhApprox => ("tanh.approx", ""),
            Alu::Popc => ("popc", ""),
            Alu::Clz => ("clz", ""),
            Alu::Brev => ("brev", ""),
            Alu::Bfe => ("bfe", ""),
            Alu::Bfi => ("bfi", ""),
            Alu::Prmt => ("prmt", ""),
            Alu::ShfL => ("shf.l.wrap", ""),
            Alu::ShfR => ("shf.r.wrap", ""),
            Alu::Lop3(_) => ("lop3", ""),
            Alu::Dp4a => ("dp4a", ""),
            Alu::CopySign => ("copysign", ""),
        };
        let ty = match self {
            Alu::And | Alu::Or | Alu::Xor | Alu::Not | Alu::Shl | Alu::Popc | Alu::Clz => {
                ty.untyped()
            }
            Alu::Brev | Alu::Bfi | Alu::Prmt | Alu::ShfL | Alu::ShfR | Alu::Lop3(_) => ty.untyped(),
            Alu::Neg | Alu::Abs => ty.signed(),
            _ => ty.unsigned(),
        };
        (name, after, ty)
    }
}

impl Special {
    pub fn spelling(self) -> &'static str {
        match self {
            Special::TidX => "%tid.x",
            Special::NtidX => "%ntid.x",
            Special::CtaidX => "%ctaid.x",
            Special::CtaidY => "%ctaid.y",
            Special::CtaidZ => "%ctaid.z",
            Special::NctaidX => "%nctaid.x",
            Special::NctaidY => "%nctaid.y",
            Special::NctaidZ => "%nctaid.z",
            Special::LaneId => "%laneid",
            Special::ClusterCtaRank => "%cluster_ctarank",
            Special::ClusterNctaRank => "%cluster_nctarank",
            Special::ClusterIdX => "%clusterid.x",
            Special::NclusterIdX => "%nclusterid.x",
            Special::SmId => "%smid",
            Special::Clock64 => "%clock64",
            Special::GlobalTimer => "%globaltimer",
        }
    }

    /// Its type.
    pub fn ty(self) -> Ty {
        match self {
            Special::Clock64 | Special::GlobalTimer => Ty::U64,
            _ => Ty::U32,
        }
    }
}

impl Round {
    pub fn spelling(self) -> &'static str {
        match self {
            Round::Rn => "rn",
            Round::Rz => "rz",
            Round::Rm => "rm",
            Round::Rp => "rp",
            Round::Rna => "rna",
            Round::Rni => "rni",
            Round::Rzi => "rzi",
            Round::Rmi => "rmi",
            Round::Rpi => "rpi",
        }
    }
}

impl Cmp {
    pub fn spelling(self) -> &'static str {
        match self {
            Cmp::Eq => "eq",
            Cmp::Ne => "ne",
            Cmp::Lt => "lt",
            Cmp::Le => "le",
            Cmp::Gt => "gt",
            Cmp::Ge => "ge",
            Cmp::Equ => "equ",
            Cmp::Neu => "neu",
            Cmp::Ltu => "ltu",
            Cmp::Leu => "leu",
            Cmp::Gtu => "gtu",
            Cmp::Geu => "geu",
            Cmp::Num => "num",
            Cmp::Nan => "nan",
        }
    }
}

impl Space {
    pub fn spelling(self) -> &'static str {
        match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::SharedCluster => "shared::cluster",
            Space::Param => "param",
            Space::Local => "local",
        }
    }

    /// The state space where an instruction needs the cluster qualifier.
    pub(crate) fn in_cluster(self) -> &'static str {
        match self {
            Space::Shared => "shared::cta",
            space => space.spelling(),
        }
    }
}

impl Sem {
    pub fn spelling(self) -> &'static str {
        match self {
            Sem::Weak => "weak",
            Sem::Relaxed => "relaxed",
            Sem::Acquire => "acquire",
            Sem::Release => "release",
            Sem::AcqRel => "acq_rel",
        }
    }

    /// With its scope, as a modifier: plain accesses have neither.
    pub(crate) fn modifier(self, scope: Scope) -> String {
        match self {
            Sem::Weak => String::new(),
            _ => format!(".{}.{}", self.spelling(), scope.spelling()),
        }
    }
}

impl Scope {
    pub fn spelling(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }
}

impl AtomOp {
    pub fn spelling(self) -> &'static str {
        match self {
            AtomOp::Add => "add",
            AtomOp::Min => "min",
            AtomOp::Max => "max",
            AtomOp::And => "and",
            AtomOp::Or => "or",
            AtomOp::Xor => "xor",
            AtomOp::Exch => "exch",
            AtomOp::Cas => "cas",
            AtomOp::Inc => "inc",
            AtomOp::Dec => "dec",
        }
    }

    /// The operation with the modifiers that its type needs, and the type it names.
    pub(crate) fn with_type(self, ty: Ty) -> (String, Ty) {
        let half = matches!(ty, Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2);
        let noftz = if half && self == AtomOp::Add { ".noftz" } else { "" };
        let ty = match self {
            AtomOp::And | AtomOp::Or | AtomOp::Xor | AtomOp::Exch | AtomOp::Cas => ty.untyped(),
            // 64-bit sums are named unsigned only; the result is the same.
            AtomOp::Add if ty == Ty::S64 => Ty::U64,
            AtomOp::Add => ty.unsigned(),
            _ => ty,
        };
        (format!("{}{noftz}", self.spelling()), ty)
    }
}

impl Shfl {
    pub fn spelling(self) -> &'static str {
        match self {
            Shfl::Up => "up",
            Shfl::Down => "down",
            Shfl::Bfly => "bfly",
            Shfl::Idx => "idx",
        }
    }
}

impl Vote {
    /// With the type of its result.
    pub fn spelling(self) -> &'static str {
        match self {
            Vote::Any => "any.pred",
            Vote::All => "all.pred",
            Vote::Uni => "uni.pred",
            Vote::Ballot => "ballot.b32",
        }
    }
}
