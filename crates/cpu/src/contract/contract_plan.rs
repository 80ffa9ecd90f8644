//! Block sizes: the accumulators of the microkernel, and how much of the operands the caches hold.

use super::Kind;
use crate::isa::Isa;
use crate::llvm::{Ir, Ty};

/// The block of sums: `rows` x (`vectors` x `lanes`) of them.
#[derive(Copy, Clone, Debug)]
pub(super) struct Shape {
    pub kind: Kind,
    pub rows: u32,
    pub vectors: u32,
    /// Columns that one vector of sums holds.
    pub lanes: u32,
    /// Bytes of an element of an operand and of a sum.
    pub operand: u32,
    pub sum: u32,
    /// Elements along k that are used together; packed operands are padded to it by zeros.
    pub step: u32,
}

impl Shape {
    pub fn of(isa: Isa, kind: Kind) -> Self {
        let (operand, sum) = match kind {
            Kind::F32 | Kind::I32 => (4, 4),
            Kind::F64 => (8, 8),
            Kind::Bf16Amx => (2, 4),
            Kind::I8Amx | Kind::U8Amx | Kind::I8U8Amx | Kind::U8I8Amx => (1, 4),
        };
        if operand < 4 {
            // Two by two tiles of 16 rows of 64 bytes.
            return Self {
                kind,
                rows: 32,
                vectors: 2,
                lanes: 16,
                operand,
                sum,
                step: 64 / operand,
            };
        }
        // As many accumulators as leave registers for a row of the right operand and one element of
        // the left. More than eight rows would fill a set of the L1 cache at a stride of 4096
        // bytes.
        let (rows, vectors) = match isa {
            Isa::Generic => (4, 2),
            Isa::Avx2 => (6, 2),
            Isa::Avx512 | Isa::Amx => (8, 3),
        };
        Self { kind, rows, vectors, lanes: isa.vector_bytes() / operand, operand, sum, step: 1 }
    }

    pub fn is_tiles(self) -> bool {
        self.step > 1
    }
    pub fn columns(self) -> u32 {
        self.vectors * self.lanes
    }
    /// Bytes of the sums of one row of a block.
    pub fn row_bytes(self) -> i64 {
        i64::from(self.columns() * self.sum)
    }
    pub fn block_bytes(self) -> i64 {
        i64::from(self.rows) * self.row_bytes()
    }
    /// Adjacent rows of a left panel where the operand is transposed in memory: whole vectors.
    pub fn across(self) -> u32 {
        self.rows.next_power_of_two()
    }
    /// Bytes of the right operand's panel of one block for each element of the depth.
    pub fn panel_bytes(self) -> i64 {
        i64::from(self.columns() * self.operand)
    }
    pub fn operand_type(self, ir: &Ir) -> Ty {
        match self.kind {
            Kind::F32 => ir.f32(),
            Kind::F64 => ir.f64(),
            Kind::I32 => ir.i32(),
            Kind::Bf16Amx => ir.i16(),
            Kind::I8Amx | Kind::U8Amx | Kind::I8U8Amx | Kind::U8I8Amx => ir.i8(),
        }
    }
    /// A vector of sums.
    pub fn sums_type(self, ir: &Ir) -> Ty {
        let elem = match self.kind {
            Kind::F32 | Kind::Bf16Amx => ir.f32(),
            Kind::F64 => ir.f64(),
            Kind::I32 | Kind::I8Amx | Kind::U8Amx | Kind::I8U8Amx | Kind::U8I8Amx => ir.i32(),
        };
        ir.vec(elem, self.lanes)
    }
}

/// Cache budgets: how much is in use at a time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Budget {
    /// The longest part of k that one pass covers; a multiple of the shape's step.
    pub depth: i64,
    /// Bytes of the packed right operand that fit the L2 cache with the rest. With 2 MiB of L2, a
    /// few percent are lost at 1.2 MB and a quarter at 2 MB.
    pub right: i64,
    /// Bytes of accumulators that are kept between passes.
    pub sums: i64,
}

/// Where the parts of the workspace begin, in bytes.
pub(super) struct Room {
    pub sums: i64,
    pub left: i64,
    pub right: i64,
    pub bytes: i64,
}

impl Budget {
    /// `computed` says that the left operand is packed, again for each block of columns: short
    /// passes make those wide.
    pub fn of(shape: Shape, computed: bool) -> Self {
        // In longer passes the left rows would evict one another from the L2 cache.
        let row = if computed && !shape.is_tiles() { 2048 } else { 8192 };
        let depth = row / i64::from(shape.operand);
        let right = if shape.is_tiles() { 1 << 20 } else { 800 << 10 };
        Self { depth, right, sums: 1536 << 10 }
    }

    pub fn room(self, shape: Shape) -> Room {
        let up = |bytes: i64| (bytes + 4095) & -4096;
        // Rows of the left panel are padded to a vector and one more; whole vectors are transposed
        // into the right one, past its end.
        let vector = i64::from(shape.lanes.max(64 / shape.operand));
        let left = i64::from(shape.across() * shape.operand) * (self.depth + 2 * vector);
        let right = self.right.max(shape.panel_bytes() * self.depth) + shape.panel_bytes() * vector;
        let left_at = up(self.sums.max(shape.block_bytes()));
        let right_at = left_at + up(left);
        Room { sums: 0, left: left_at, right: right_at, bytes: right_at + up(right) }
    }
}
