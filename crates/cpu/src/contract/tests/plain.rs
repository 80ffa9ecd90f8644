//! A plain matmul over arrays, compiled: what the tests call.

use crate::contract::blocks::{self, Frame};
use crate::contract::contract_plan::{Budget, Shape};
use crate::contract::{Contraction, Kind, Left, few};
use crate::isa::Isa;
use crate::llvm::{Ir, Loaded, Machine, Ty, Val};

/// How the operands are given.
#[derive(Copy, Clone, Debug)]
pub struct Variant {
    pub computed_left: bool,
    pub transposed_left: bool,
    pub transposed_right: bool,
    pub start: bool,
    /// Many instructions that change nothing, so that they are not repeated for every register.
    pub long_finish: bool,
    /// Rows and columns of the whole matmul, where the code knows them.
    pub whole: [Option<i64>; 2],
    /// The form for few rows, and whether it may add in any order.
    pub few: Option<bool>,
}

/// `c = a b` or `c = c + a b`, sizes and row strides in elements.
pub type Gemm = unsafe extern "C" fn(
    a: *const u8,
    b: *const u8,
    c: *mut u8,
    sizes: *const [i64; 6],
    workspace: *mut u8,
);

pub struct Compiled {
    pub call: Gemm,
    pub instructions: usize,
    _code: Loaded,
}

impl Variant {
    pub const PLAIN: Variant = Variant {
        computed_left: false,
        transposed_left: false,
        transposed_right: false,
        start: false,
        long_finish: false,
        whole: [None, None],
        few: None,
    };
    pub const EVERYTHING: Variant = Variant {
        computed_left: true,
        transposed_left: false,
        transposed_right: true,
        start: true,
        long_finish: true,
        whole: [None, None],
        few: None,
    };
    pub const ALL: [Variant; 8] = [
        Variant::PLAIN,
        Variant { computed_left: true, ..Variant::PLAIN },
        Variant { computed_left: true, transposed_left: true, ..Variant::PLAIN },
        Variant { transposed_left: true, ..Variant::EVERYTHING },
        Variant { transposed_right: true, ..Variant::PLAIN },
        Variant { start: true, ..Variant::PLAIN },
        Variant { long_finish: true, ..Variant::PLAIN },
        Variant::EVERYTHING,
    ];
}

fn element(ir: &Ir, base: Val, row: Val, stride: Val, col: Val, bytes: u32) -> Val {
    let at = ir.add(ir.mul(row, stride), col);
    ir.offset(base, ir.mul_const(at, bytes.into()))
}

fn read(ir: &Ir, ty: Ty, at: Val, bytes: u32, mask: Option<Val>) -> Val {
    match mask {
        None => ir.load(ty, at, bytes),
        Some(mask) => ir.masked_load(ty, at, bytes, mask, ir.undef(ty)),
    }
}

/// Emits the function `gemm` into a module of its own.
pub fn module(isa: Isa, kind: Kind, way: Variant, budget: Option<(i64, i64, i64)>) -> Ir {
    let ir = Ir::new("plain");
    let shape = Shape::of(isa, kind);
    let fun = ir.function("gemm", ir.void(), &[ir.ptr(); 5]);
    (0..5).for_each(|i| ir.no_alias(fun, i));
    let param = |i| ir.param(fun, i);
    let size = |i: i64| ir.load(ir.i64(), ir.offset_const(param(3), 8 * i), 8);
    let [rows, cols, depth, lda, ldb, ldc] = [0, 1, 2, 3, 4, 5].map(size);
    let operand = shape.operand_type(&ir);
    let sum = ir.elem(shape.sums_type(&ir));
    let from = |base: Val, row, stride, col, lanes, mask: Option<Val>| {
        let at = element(&ir, base, row, stride, col, shape.operand);
        read(&ir, ir.vec(operand, lanes), at, shape.operand, mask)
    };
    let a = |_: &Ir, m, k, lanes, mask| from(param(0), m, lda, k, lanes, mask);
    let a_along_m = |_: &Ir, m, k, lanes, mask| from(param(0), k, lda, m, lanes, mask);
    let b = |_: &Ir, k, n, lanes, mask| from(param(1), k, ldb, n, lanes, mask);
    let b_along_k = |_: &Ir, k, n, lanes, mask| from(param(1), n, ldb, k, lanes, mask);
    let start = |ir: &Ir, m, n, lanes, mask| {
        let at = element(ir, param(2), m, ldc, n, shape.sum);
        read(ir, ir.vec(sum, lanes), at, shape.sum, mask)
    };
    let finish = |ir: &Ir, m, n, mut sums, mask: Option<Val>| {
        if way.long_finish {
            let (ty, bits) = (ir.ty(sums), ir.like(ir.ty(sums), ir.int(8 * shape.sum)));
            let twice = ir.splat(ir.trunc(rows, ir.elem(bits)), shape.lanes);
            sums = ir.bitcast(sums, bits);
            (0..20).for_each(|_| sums = ir.xor(sums, twice));
            sums = ir.bitcast(sums, ty);
        }
        let at = element(ir, param(2), m, ldc, n, shape.sum);
        match mask {
            None => _ = ir.store(sums, at, shape.sum),
            Some(mask) => ir.masked_store(sums, at, shape.sum, mask),
        }
    };
    let row_bytes = ir.mul_const(lda, shape.operand.into());
    let contraction = Contraction {
        kind,
        rows,
        cols,
        depth,
        whole: way.whole,
        all: [rows, cols],
        few: true,
        any_order: way.few == Some(true),
        a: if way.computed_left {
            Left::Computed(&a)
        } else {
            Left::InPlace { base: param(0), row_bytes }
        },
        a_along_m: way.transposed_left.then_some(&a_along_m),
        b: &b,
        b_along_k: way.transposed_right.then_some(&b_along_k),
        start: way.start.then_some(&start),
        finish: &finish,
        workspace: param(4),
    };
    let budget = match budget {
        Some((depth, right, sums)) => Budget { depth, right, sums },
        None => Budget::of(shape, way.computed_left),
    };
    match way.few {
        None => blocks::emit(&ir, isa, &contraction, budget),
        Some(_) => few::emit(&Frame::new(&ir, isa, &contraction, budget)),
    }
    ir.ret(None);
    ir
}

pub fn load(ir: &Ir, isa: Isa, name: &str) -> (usize, Loaded) {
    let (cpu, features) = isa.llvm();
    let machine = Machine::new(cpu, features).unwrap();
    machine.verify(ir).unwrap();
    let object = machine.object(ir).unwrap();
    let code = Loaded::new(&object, &[]).unwrap();
    (code.address(name).unwrap(), code)
}

pub fn compile(isa: Isa, kind: Kind, way: Variant, budget: Option<(i64, i64, i64)>) -> Compiled {
    let ir = module(isa, kind, way, budget);
    // Emission changes the module.
    let instructions = ir.instructions();
    let (address, code) = load(&ir, isa, "gemm");
    // SAFETY: the function was emitted with this signature.
    let call = unsafe { std::mem::transmute::<usize, Gemm>(address) };
    Compiled { call, instructions, _code: code }
}
