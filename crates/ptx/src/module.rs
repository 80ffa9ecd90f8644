//! A PTX module as data: what is printed, counted and interpreted.

use crate::inst::{Class, Inst, Label, Reg};
use std::fmt;

/// A version of the PTX language.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A target: `sm_80`, or with architecture-specific features, `sm_90a`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target {
    pub sm: u32,
    /// Whether code may use what only this architecture has.
    pub exact: bool,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.exact { "a" } else { "" })
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    pub version: Version,
    pub target: Target,
    /// Source files that locations name, by number from 1.
    pub files: Vec<String>,
    pub kernels: Vec<Kernel>,
}

/// One entry point. Its arguments are one block of bytes, which the launch fills.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    pub name: String,
    /// Blocks of parameter bytes, in order. The first holds the argument words.
    pub params: Vec<Param>,
    /// Registers of each class that the code uses.
    pub regs: [u32; 4],
    pub labels: u32,
    /// Shared memory of fixed size; dynamic memory begins at `dynamic_shared`.
    pub shared: Vec<SharedVar>,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Every launch must give the cluster size: the kernel does not declare it.
    pub explicit_cluster: bool,
    /// Resident blocks that a multiprocessor must have room for; limits registers.
    pub min_blocks: Option<u32>,
    pub max_registers: Option<u32>,
    /// Bytes of shared memory that the launch requests beyond `shared`.
    pub dynamic_shared: u32,
    pub body: Vec<Stmt>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    pub name: String,
    pub bytes: u32,
    pub align: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub struct SharedVar {
    pub name: String,
    pub bytes: u32,
    pub align: u32,
}

/// The name under which dynamic shared memory is declared.
pub const DYNAMIC_SHARED: &str = "dynamic_shared";
/// The alignment it is declared with: that of the widest swizzle.
pub const DYNAMIC_ALIGN: u32 = 1024;

/// A predicate under which a thread executes an instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    pub reg: Reg,
    /// Execute where the register is false.
    pub negated: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    Inst {
        guard: Option<Guard>,
        inst: Inst,
    },
    Label(Label),
    /// The source location of what follows.
    Place {
        file: u32,
        line: u32,
        column: u32,
    },
    /// For people: printed, never hashed.
    Note(String),
}

impl Kernel {
    pub fn new(name: impl Into<String>, threads: u32) -> Self {
        Self {
            name: name.into(),
            params: Vec::new(),
            regs: [0; 4],
            labels: 0,
            shared: Vec::new(),
            threads,
            cluster: 1,
            explicit_cluster: false,
            min_blocks: None,
            max_registers: None,
            dynamic_shared: 0,
            body: Vec::new(),
        }
    }

    /// Bytes of shared memory of a block: the fixed variables, each at its alignment, followed by
    /// the dynamic memory at its own.
    pub fn shared_bytes(&self) -> u32 {
        let fixed =
            self.shared.iter().fold(0, |at: u32, v| at.next_multiple_of(v.align.max(1)) + v.bytes);
        match self.dynamic_shared {
            0 => fixed,
            dynamic => fixed.next_multiple_of(DYNAMIC_ALIGN) + dynamic,
        }
    }

    pub fn instructions(&self) -> impl Iterator<Item = &Inst> {
        self.body.iter().filter_map(|s| match s {
            Stmt::Inst { inst, .. } => Some(inst),
            Stmt::Label(_) | Stmt::Place { .. } | Stmt::Note(_) => None,
        })
    }
}

impl Class {
    /// Its index in [`Kernel::regs`].
    pub fn place(self) -> usize {
        match self {
            Class::Pred => 0,
            Class::B16 => 1,
            Class::B32 => 2,
            Class::B64 => 3,
        }
    }
}
