//! Calls of the functions of `tessera_numerics` from generated code.
//!
//! All lanes go in one call: the operands are put into memory, one array after the other, with room
//! for the results behind them. That is little code for the caller, and the callee loops.

use super::Scalars;
use crate::llvm::{Symbol, Ty, Val};
use tessera_numerics::{Carrier, DType, Kernel, Rounding, Scalar, ScalarFn, cast_with, encode};

/// The functions that generated code calls by name.
pub fn symbols() -> Vec<Symbol> {
    vec![
        Symbol { name: "tessera_scalar_apply", address: apply as *const () as usize },
        Symbol { name: "tessera_scalar_convert", address: convert as *const () as usize },
        // What LLVM calls for a fused multiply-add on a processor without one. The system's library
        // need not be visible from where the code is loaded.
        Symbol { name: "fmaf", address: fused_f32 as *const () as usize },
        Symbol { name: "fma", address: fused_f64 as *const () as usize },
    ]
}

extern "C" fn fused_f32(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

extern "C" fn fused_f64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

/// Bytes that each lane of an operand has at its disposal, whatever its type.
const LANE: usize = 8;

/// What a call is to do, in one word: four small numbers and the lanes.
#[derive(Copy, Clone)]
struct Task {
    parts: [u8; 4],
    lanes: u32,
}

impl Task {
    fn word(self) -> i64 {
        (u64::from(u32::from_le_bytes(self.parts)) | u64::from(self.lanes) << 32) as i64
    }

    fn from_word(word: u64) -> Self {
        Task { parts: (word as u32).to_le_bytes(), lanes: (word >> 32) as u32 }
    }
}

/// Its number, the same for those who call and those who are called since both are of one build.
fn index<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().position(|x| *x == one).unwrap_or(usize::MAX) as u8
}

impl Scalars<'_> {
    pub(super) fn apply_by_call(&self, f: ScalarFn, dtype: DType, args: &[Val]) -> Val {
        let lanes = self.lanes(args[0]);
        let task = Task { parts: [index(ScalarFn::ALL, f), index(DType::ALL, dtype), 0, 0], lanes };
        let result = self.carrier(f.result(dtype), lanes);
        self.call_all("tessera_scalar_apply", task, args, result)
    }

    pub(super) fn cast_by_call(
        &self,
        x: Val,
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
    ) -> Val {
        let result = self.carrier(to, self.lanes(x));
        self.convert_by_call(x, [from, to], round, [saturate, false], result)
    }

    /// From any carrier to the code of `to`.
    pub(super) fn encode_by_call(
        &self,
        x: Val,
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
    ) -> Val {
        let result = self.stored(to, self.lanes(x));
        self.convert_by_call(x, [from, to], round, [saturate, true], result)
    }

    fn convert_by_call(
        &self,
        x: Val,
        types: [DType; 2],
        round: Rounding,
        [saturate, to_code]: [bool; 2],
        result: Ty,
    ) -> Val {
        let [from, to] = types.map(|t| index(DType::ALL, t));
        let flags = u8::from(saturate) | u8::from(to_code) << 1;
        let parts = [from, to, index(Rounding::ALL, round), flags];
        let task = Task { parts, lanes: self.lanes(x) };
        self.call_all("tessera_scalar_convert", task, &[x], result)
    }

    /// Puts the operands into memory, calls, and takes the results.
    fn call_all(&self, name: &str, task: Task, args: &[Val], result: Ty) -> Val {
        let ir = self.ir;
        let stride = i64::from(task.lanes) * LANE as i64;
        let bytes = stride * (args.len() as i64 + 1);
        let room = ir.alloca(ir.array(ir.i8(), bytes as u64), 64);
        ir.intrinsic("llvm.lifetime.start", &[ir.ptr()], &[ir.c64(bytes), room]);
        for (i, &arg) in args.iter().enumerate() {
            ir.store(self.in_memory(arg), ir.offset_const(room, stride * i as i64), LANE as u32);
        }
        let callee = ir.external(name, ir.void(), &[ir.i64(), ir.ptr()]);
        ir.function_attr(callee, "nounwind", None);
        ir.call(callee, &[ir.c64(task.word()), room]);
        let out = ir.offset_const(room, stride * args.len() as i64);
        let is_bool = ir.elem(result) == ir.i1();
        let held = if is_bool { ir.like(result, ir.i8()) } else { result };
        let loaded = ir.load(held, out, LANE as u32);
        ir.intrinsic("llvm.lifetime.end", &[ir.ptr()], &[ir.c64(bytes), room]);
        if is_bool { ir.trunc(loaded, result) } else { loaded }
    }

    /// A bool takes a byte in memory.
    fn in_memory(&self, v: Val) -> Val {
        let ty = self.ir.ty(v);
        let is_bool = self.ir.elem(ty) == self.ir.i1();
        if is_bool { self.ir.zext(v, self.ir.like(ty, self.ir.i8())) } else { v }
    }
}

// The callees. They look everything up in tables and cannot panic; what is not there does nothing.

/// Reads `lanes` elements of operand `i` and writes results behind the operands.
struct Room {
    base: *mut u8,
    lanes: usize,
}

impl Room {
    /// # Safety
    /// The room has an operand `i` whose lanes hold values of `T`.
    unsafe fn operand<T: Copy>(&self, i: usize) -> &[T] {
        // SAFETY: as the contract says; every operand begins at a multiple of `LANE`.
        unsafe {
            std::slice::from_raw_parts(self.base.add(i * self.lanes * LANE).cast(), self.lanes)
        }
    }

    /// # Safety
    /// The room has `operands` operands and lanes of `T` fit behind them.
    unsafe fn write<T>(&self, operands: usize, results: impl Iterator<Item = T>) {
        // SAFETY: as the contract says.
        let out: *mut T = unsafe { self.base.add(operands * self.lanes * LANE).cast() };
        // SAFETY: no more lanes than there are.
        results.take(self.lanes).enumerate().for_each(|(i, y)| unsafe { out.add(i).write(y) });
    }

    /// # Safety
    /// As for the parts: one operand of `T`.
    unsafe fn map1<T: Copy, R>(&self, f: impl Fn(T) -> R) {
        unsafe { self.write(1, self.operand::<T>(0).iter().map(|&a| f(a))) }
    }

    /// # Safety
    /// As for the parts: two operands of `T`.
    unsafe fn map2<T: Copy, R>(&self, f: impl Fn(T, T) -> R) {
        unsafe {
            let (a, b) = (self.operand::<T>(0), self.operand::<T>(1));
            self.write(2, a.iter().zip(b).map(|(&a, &b)| f(a, b)));
        }
    }

    /// # Safety
    /// As for the parts: three operands of `T`.
    unsafe fn map3<T: Copy, R>(&self, f: impl Fn(T, T, T) -> R) {
        unsafe {
            let (a, b, c) = (self.operand::<T>(0), self.operand::<T>(1), self.operand::<T>(2));
            self.write(3, a.iter().zip(b).zip(c).map(|((&a, &b), &c)| f(a, b, c)));
        }
    }
}

/// # Safety
/// Called by the code of `call_all` only.
unsafe extern "C" fn apply(task: u64, base: *mut u8) {
    let Task { parts: [f, dtype, ..], lanes } = Task::from_word(task);
    let found = ScalarFn::ALL.get(usize::from(f)).zip(DType::ALL.get(usize::from(dtype)));
    let Some(kernel) = found.and_then(|(f, &dtype)| f.kernel(dtype)) else { return };
    let room = Room { base, lanes: lanes as usize };
    // SAFETY: the caller laid out the operands of this very kernel; a Rust bool is a byte.
    unsafe {
        match kernel {
            Kernel::F32U(k) => room.map1(k),
            Kernel::F32B(k) => room.map2(k),
            Kernel::F32T(k) => room.map3(k),
            Kernel::F32P(k) => room.map1(k),
            Kernel::F32C(k) => room.map2(k),
            Kernel::F64U(k) => room.map1(k),
            Kernel::F64B(k) => room.map2(k),
            Kernel::F64T(k) => room.map3(k),
            Kernel::F64P(k) => room.map1(k),
            Kernel::F64C(k) => room.map2(k),
            Kernel::I32U(k) => room.map1(k),
            Kernel::I32B(k) => room.map2(k),
            Kernel::I32T(k) => room.map3(k),
            Kernel::I32C(k) => room.map2(k),
            Kernel::I64U(k) => room.map1(k),
            Kernel::I64B(k) => room.map2(k),
            Kernel::I64T(k) => room.map3(k),
            Kernel::I64C(k) => room.map2(k),
            Kernel::U32U(k) => room.map1(k),
            Kernel::U32B(k) => room.map2(k),
            Kernel::U32T(k) => room.map3(k),
            Kernel::U32C(k) => room.map2(k),
            Kernel::U64U(k) => room.map1(k),
            Kernel::U64B(k) => room.map2(k),
            Kernel::U64T(k) => room.map3(k),
            Kernel::U64C(k) => room.map2(k),
            Kernel::BoolU(k) => room.map1(k),
            Kernel::BoolB(k) => room.map2(k),
        }
    }
}

/// # Safety
/// Called by the code of `call_all` only.
unsafe extern "C" fn convert(task: u64, base: *mut u8) {
    let Task { parts: [from, to, round, flags], lanes } = Task::from_word(task);
    let types = DType::ALL.get(usize::from(from)).zip(DType::ALL.get(usize::from(to)));
    let Some((&from, &to)) = types else { return };
    let Some(&round) = Rounding::ALL.get(usize::from(round)) else { return };
    let (saturate, to_code) = (flags & 1 != 0, flags & 2 != 0);
    let room = Room { base, lanes: lanes as usize };
    let one = |x: Scalar| {
        if to_code {
            encode(to, x, round, saturate)
        } else {
            cast_with(x, from, to, round, saturate).bits()
        }
    };
    let bytes = if to_code { to.bytes() } else { to.carrier().bytes() };
    // SAFETY: the caller laid out one operand in the carrier of `from`, and takes lanes this wide.
    unsafe {
        match from.carrier() {
            DType::Bool => room.narrowed::<bool>(bytes, one),
            DType::I64 => room.narrowed::<i64>(bytes, one),
            DType::U32 => room.narrowed::<u32>(bytes, one),
            DType::U64 => room.narrowed::<u64>(bytes, one),
            DType::F32 => room.narrowed::<f32>(bytes, one),
            DType::F64 => room.narrowed::<f64>(bytes, one),
            _ => room.narrowed::<i32>(bytes, one),
        }
    }
}

impl Room {
    /// # Safety
    /// As for the parts: one operand of `T`, results of `bytes` each.
    unsafe fn narrowed<T: Carrier>(&self, bytes: usize, f: impl Fn(Scalar) -> u64) {
        unsafe {
            match bytes {
                1 => self.map1(|x: T| f(x.into_scalar()) as u8),
                2 => self.map1(|x: T| f(x.into_scalar()) as u16),
                4 => self.map1(|x: T| f(x.into_scalar()) as u32),
                _ => self.map1(|x: T| f(x.into_scalar())),
            }
        }
    }
}
