//! One module under construction: types, constants and instructions.

use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{
    LLVMAtomicOrdering, LLVMDiagnosticSeverity, LLVMInlineAsmDialect, LLVMIntPredicate,
    LLVMRealPredicate, LLVMTypeKind,
};
use std::cell::RefCell;
use std::ffi::{CStr, CString};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ty(pub(super) LLVMTypeRef);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Val(pub(super) LLVMValueRef);

/// A function with its type.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fun {
    pub(super) value: LLVMValueRef,
    pub(super) ty: LLVMTypeRef,
}

pub struct Ir {
    pub(super) ctx: LLVMContextRef,
    pub(super) module: LLVMModuleRef,
    pub(super) builder: LLVMBuilderRef,
    /// What LLVM said of the module's code: the assembler's words on texts of users.
    said: Box<RefCell<Vec<String>>>,
}

/// Keeps what LLVM reports as an error; without a handler it would end the process.
extern "C" fn heard(info: LLVMDiagnosticInfoRef, list: *mut libc::c_void) {
    // SAFETY: LLVM calls this with what it was given in `Ir::new`, which lives as long as the
    // context; and the description is ours.
    unsafe {
        if LLVMGetDiagInfoSeverity(info) == LLVMDiagnosticSeverity::LLVMDSError {
            let text = super::machine::message(LLVMGetDiagInfoDescription(info));
            (*list.cast::<RefCell<Vec<String>>>()).borrow_mut().push(text);
        }
    }
}

pub(super) const NO_NAME: *const libc::c_char = c"".as_ptr();

/// A name for LLVM; ours hold no zero byte.
pub(super) fn c(name: &str) -> CString {
    CString::new(name.replace('\0', "")).unwrap_or_default()
}

impl Drop for Ir {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and nothing that belongs to them outlives this.
        unsafe {
            LLVMDisposeBuilder(self.builder);
            LLVMDisposeModule(self.module);
            LLVMContextDispose(self.ctx);
        }
    }
}

macro_rules! two {
    ($($(#[$doc:meta])* $name:ident = $build:ident;)*) => { $(
        $(#[$doc])*
        pub fn $name(&self, a: Val, b: Val) -> Val {
            Val(unsafe { $build(self.builder, a.0, b.0, NO_NAME) })
        }
    )* };
}

macro_rules! convert {
    ($($name:ident = $build:ident;)*) => { $(
        pub fn $name(&self, a: Val, to: Ty) -> Val {
            Val(unsafe { $build(self.builder, a.0, to.0, NO_NAME) })
        }
    )* };
}

// SAFETY of all calls below: the handles are of this module's context (the contract of this folder),
// and operand types are the caller's concern, which LLVM's verifier checks before code is emitted.
impl Ir {
    pub fn new(name: &str) -> Self {
        unsafe {
            let ctx = LLVMContextCreate();
            let module = LLVMModuleCreateWithNameInContext(c(name).as_ptr(), ctx);
            let said = Box::<RefCell<Vec<String>>>::default();
            let list = std::ptr::from_ref(&*said).cast_mut().cast();
            LLVMContextSetDiagnosticHandler(ctx, Some(heard), list);
            Self { ctx, module, builder: LLVMCreateBuilderInContext(ctx), said }
        }
    }

    // Types.

    pub fn void(&self) -> Ty {
        Ty(unsafe { LLVMVoidTypeInContext(self.ctx) })
    }
    pub fn int(&self, bits: u32) -> Ty {
        Ty(unsafe { LLVMIntTypeInContext(self.ctx, bits) })
    }
    pub fn i1(&self) -> Ty {
        self.int(1)
    }
    pub fn i8(&self) -> Ty {
        self.int(8)
    }
    pub fn i16(&self) -> Ty {
        self.int(16)
    }
    pub fn i32(&self) -> Ty {
        self.int(32)
    }
    pub fn i64(&self) -> Ty {
        self.int(64)
    }
    pub fn f16(&self) -> Ty {
        Ty(unsafe { LLVMHalfTypeInContext(self.ctx) })
    }
    pub fn f32(&self) -> Ty {
        Ty(unsafe { LLVMFloatTypeInContext(self.ctx) })
    }
    pub fn f64(&self) -> Ty {
        Ty(unsafe { LLVMDoubleTypeInContext(self.ctx) })
    }
    pub fn ptr(&self) -> Ty {
        Ty(unsafe { LLVMPointerTypeInContext(self.ctx, 0) })
    }
    pub fn array(&self, elem: Ty, len: u64) -> Ty {
        Ty(unsafe { LLVMArrayType2(elem.0, len) })
    }
    /// A vector of `n` lanes; of one lane, the element type itself.
    pub fn vec(&self, elem: Ty, n: u32) -> Ty {
        if n == 1 { elem } else { Ty(unsafe { LLVMVectorType(elem.0, n) }) }
    }
    /// Lanes of a type: 1 for what is no vector.
    pub fn lanes(&self, ty: Ty) -> u32 {
        unsafe {
            match LLVMGetTypeKind(ty.0) {
                LLVMTypeKind::LLVMVectorTypeKind => LLVMGetVectorSize(ty.0),
                _ => 1,
            }
        }
    }
    /// The type of one lane.
    pub fn elem(&self, ty: Ty) -> Ty {
        unsafe {
            match LLVMGetTypeKind(ty.0) {
                LLVMTypeKind::LLVMVectorTypeKind => Ty(LLVMGetElementType(ty.0)),
                _ => ty,
            }
        }
    }
    /// The same lanes with another element type.
    pub fn like(&self, ty: Ty, elem: Ty) -> Ty {
        self.vec(elem, self.lanes(ty))
    }
    /// Bits of one lane of an integer type.
    pub fn bits(&self, ty: Ty) -> u32 {
        unsafe { LLVMGetIntTypeWidth(self.elem(ty).0) }
    }
    pub fn ty(&self, v: Val) -> Ty {
        Ty(unsafe { LLVMTypeOf(v.0) })
    }

    // Constants. Of a vector type, every lane is the value.

    pub fn const_int(&self, ty: Ty, v: i64) -> Val {
        let one = Val(unsafe { LLVMConstInt(self.elem(ty).0, v as u64, 1) });
        self.const_splat(one, self.lanes(ty))
    }
    pub fn const_float(&self, ty: Ty, v: f64) -> Val {
        let one = Val(unsafe { LLVMConstReal(self.elem(ty).0, v) });
        self.const_splat(one, self.lanes(ty))
    }
    /// A float by its bits, so that every NaN and zero is kept.
    pub fn const_bits(&self, ty: Ty, bits: u64) -> Val {
        let elem = self.elem(ty);
        let width = unsafe {
            match LLVMGetTypeKind(elem.0) {
                LLVMTypeKind::LLVMHalfTypeKind | LLVMTypeKind::LLVMBFloatTypeKind => 16,
                LLVMTypeKind::LLVMDoubleTypeKind => 64,
                LLVMTypeKind::LLVMIntegerTypeKind => LLVMGetIntTypeWidth(elem.0),
                _ => 32,
            }
        };
        let int = self.const_int(self.int(width), bits as i64);
        let one = Val(unsafe { LLVMConstBitCast(int.0, elem.0) });
        self.const_splat(one, self.lanes(ty))
    }
    pub fn bool(&self, v: bool) -> Val {
        self.const_int(self.i1(), v.into())
    }
    pub fn c32(&self, v: i32) -> Val {
        self.const_int(self.i32(), v.into())
    }
    pub fn c64(&self, v: i64) -> Val {
        self.const_int(self.i64(), v)
    }
    pub fn const_vec(&self, lanes: &[Val]) -> Val {
        match lanes {
            [one] => *one,
            _ => {
                let mut raw: Vec<_> = lanes.iter().map(|v| v.0).collect();
                Val(unsafe { LLVMConstVector(raw.as_mut_ptr(), raw.len() as u32) })
            }
        }
    }
    fn const_splat(&self, one: Val, n: u32) -> Val {
        self.const_vec(&vec![one; n as usize])
    }
    /// `start, start + step, …` in the lanes of an integer vector type.
    pub fn const_steps(&self, ty: Ty, start: i64, step: i64) -> Val {
        let elem = self.elem(ty);
        let lane = |i| self.const_int(elem, start.wrapping_add(step.wrapping_mul(i)));
        self.const_vec(&(0..i64::from(self.lanes(ty))).map(lane).collect::<Vec<_>>())
    }
    pub fn undef(&self, ty: Ty) -> Val {
        Val(unsafe { LLVMGetPoison(ty.0) })
    }
    pub fn zero(&self, ty: Ty) -> Val {
        Val(unsafe { LLVMConstNull(ty.0) })
    }
    pub fn is_const(&self, v: Val) -> bool {
        unsafe { LLVMIsConstant(v.0) != 0 }
    }
    /// Whether it is known that all bits are set.
    pub fn is_all_ones(&self, v: Val) -> bool {
        let ones = unsafe { LLVMConstAllOnes(self.ty(v).0) };
        // Constants of one value are one object.
        ones == v.0
    }
    /// The value of a constant integer scalar.
    pub fn as_int(&self, v: Val) -> Option<i64> {
        unsafe {
            let known = !LLVMIsAConstantInt(v.0).is_null();
            known.then(|| LLVMConstIntGetSExtValue(v.0))
        }
    }
    /// A table in the module's read-only data; gives its address.
    pub fn const_table(&self, elem: Ty, values: &[Val]) -> Val {
        unsafe {
            let mut raw: Vec<_> = values.iter().map(|v| v.0).collect();
            let init = LLVMConstArray2(elem.0, raw.as_mut_ptr(), raw.len() as u64);
            let global = LLVMAddGlobal(self.module, LLVMTypeOf(init), c"table".as_ptr());
            LLVMSetInitializer(global, init);
            LLVMSetGlobalConstant(global, 1);
            LLVMSetLinkage(global, llvm_sys::LLVMLinkage::LLVMPrivateLinkage);
            LLVMSetAlignment(global, 64);
            Val(global)
        }
    }

    /// Zeros of this size in the module's read-only data.
    pub fn zeros(&self, bytes: u64) -> Val {
        let name = c(&format!("zeros{bytes}"));
        unsafe {
            let known = LLVMGetNamedGlobal(self.module, name.as_ptr());
            if !known.is_null() {
                return Val(known);
            }
            let ty = LLVMArrayType2(self.int(8).0, bytes);
            let global = LLVMAddGlobal(self.module, ty, name.as_ptr());
            LLVMSetInitializer(global, LLVMConstNull(ty));
            LLVMSetGlobalConstant(global, 1);
            LLVMSetLinkage(global, llvm_sys::LLVMLinkage::LLVMPrivateLinkage);
            LLVMSetAlignment(global, 64);
            Val(global)
        }
    }

    // Arithmetic.

    two! {
        add = LLVMBuildAdd;
        sub = LLVMBuildSub;
        mul = LLVMBuildMul;
        sdiv = LLVMBuildSDiv;
        udiv = LLVMBuildUDiv;
        urem = LLVMBuildURem;
        fadd = LLVMBuildFAdd;
        fsub = LLVMBuildFSub;
        fmul = LLVMBuildFMul;
        fdiv = LLVMBuildFDiv;
        and = LLVMBuildAnd;
        or = LLVMBuildOr;
        xor = LLVMBuildXor;
        shl = LLVMBuildShl;
        lshr = LLVMBuildLShr;
        ashr = LLVMBuildAShr;
    }

    convert! {
        trunc = LLVMBuildTrunc;
        zext = LLVMBuildZExt;
        sext = LLVMBuildSExt;
        fptrunc = LLVMBuildFPTrunc;
        fpext = LLVMBuildFPExt;
        si_to_fp = LLVMBuildSIToFP;
        ui_to_fp = LLVMBuildUIToFP;
        fp_to_si = LLVMBuildFPToSI;
        fp_to_ui = LLVMBuildFPToUI;
        bitcast = LLVMBuildBitCast;
        ptr_to_int = LLVMBuildPtrToInt;
    }

    pub fn fneg(&self, a: Val) -> Val {
        Val(unsafe { LLVMBuildFNeg(self.builder, a.0, NO_NAME) })
    }
    pub fn not(&self, a: Val) -> Val {
        Val(unsafe { LLVMBuildNot(self.builder, a.0, NO_NAME) })
    }
    pub fn icmp(&self, how: LLVMIntPredicate, a: Val, b: Val) -> Val {
        Val(unsafe { LLVMBuildICmp(self.builder, how, a.0, b.0, NO_NAME) })
    }
    pub fn fcmp(&self, how: LLVMRealPredicate, a: Val, b: Val) -> Val {
        Val(unsafe { LLVMBuildFCmp(self.builder, how, a.0, b.0, NO_NAME) })
    }
    pub fn select(&self, cond: Val, a: Val, b: Val) -> Val {
        Val(unsafe { LLVMBuildSelect(self.builder, cond.0, a.0, b.0, NO_NAME) })
    }
    /// Adds a constant.
    pub fn add_const(&self, a: Val, v: i64) -> Val {
        if v == 0 { a } else { self.add(a, self.const_int(self.ty(a), v)) }
    }
    pub fn mul_const(&self, a: Val, v: i64) -> Val {
        if v == 1 { a } else { self.mul(a, self.const_int(self.ty(a), v)) }
    }

    // Vectors.

    pub fn extract(&self, v: Val, lane: u32) -> Val {
        if self.lanes(self.ty(v)) == 1 {
            return v;
        }
        self.extract_at(v, self.c32(lane as i32))
    }
    pub fn extract_at(&self, v: Val, lane: Val) -> Val {
        Val(unsafe { LLVMBuildExtractElement(self.builder, v.0, lane.0, NO_NAME) })
    }
    pub fn insert(&self, v: Val, x: Val, lane: u32) -> Val {
        if self.lanes(self.ty(v)) == 1 {
            return x;
        }
        let at = self.c32(lane as i32);
        Val(unsafe { LLVMBuildInsertElement(self.builder, v.0, x.0, at.0, NO_NAME) })
    }
    /// The scalar in `n` lanes.
    pub fn splat(&self, x: Val, n: u32) -> Val {
        if n == 1 {
            return x;
        }
        if self.is_const(x) {
            return self.const_splat(x, n);
        }
        let one = self.insert(self.undef(self.vec(self.ty(x), n)), x, 0);
        self.shuffle(one, one, &vec![0; n as usize])
    }
    /// Lanes of `a` (0…n-1) and `b` (n…2n-1) in the order of `picks`.
    pub fn shuffle(&self, a: Val, b: Val, picks: &[u32]) -> Val {
        if picks.len() == 1 {
            let n = self.lanes(self.ty(a));
            return if picks[0] < n {
                self.extract(a, picks[0])
            } else {
                self.extract(b, picks[0] - n)
            };
        }
        let mask: Vec<_> = picks.iter().map(|&p| self.c32(p as i32)).collect();
        let mask = self.const_vec(&mask);
        Val(unsafe { LLVMBuildShuffleVector(self.builder, a.0, b.0, mask.0, NO_NAME) })
    }
    /// A mask whose first `count` lanes are on; `count` is an i64.
    pub fn first_lanes(&self, count: Val, n: u32) -> Val {
        let (wide, narrow) = (self.c64(n.into()), self.c64(0));
        let count = self.smin(self.smax(count, narrow), wide);
        let count = self.trunc(count, self.i32());
        let steps = self.const_steps(self.vec(self.i32(), n), 0, 1);
        self.icmp(LLVMIntPredicate::LLVMIntSLT, steps, self.splat(count, n))
    }
    pub fn const_first_lanes(&self, count: u32, n: u32) -> Val {
        let lane = |i: u32| self.bool(i < count);
        self.const_vec(&(0..n).map(lane).collect::<Vec<_>>())
    }

    // Memory. Addresses are pointers and byte offsets; alignments are in bytes.

    /// `p + bytes`; `bytes` may be a vector, giving a vector of pointers.
    pub fn offset(&self, p: Val, bytes: Val) -> Val {
        let mut at = [bytes.0];
        let ty = self.i8();
        Val(unsafe { LLVMBuildGEP2(self.builder, ty.0, p.0, at.as_mut_ptr(), 1, NO_NAME) })
    }
    pub fn offset_const(&self, p: Val, bytes: i64) -> Val {
        if bytes == 0 { p } else { self.offset(p, self.c64(bytes)) }
    }
    pub fn load(&self, ty: Ty, p: Val, align: u32) -> Val {
        unsafe {
            let v = LLVMBuildLoad2(self.builder, ty.0, p.0, NO_NAME);
            LLVMSetAlignment(v, align);
            Val(v)
        }
    }
    pub fn store(&self, v: Val, p: Val, align: u32) -> Val {
        unsafe {
            let s = LLVMBuildStore(self.builder, v.0, p.0);
            LLVMSetAlignment(s, align);
            Val(s)
        }
    }
    /// Marks a load or store as one whose data will not be wanted again soon.
    pub fn non_temporal(&self, access: Val) {
        unsafe {
            let kind = LLVMGetMDKindIDInContext(self.ctx, c"nontemporal".as_ptr(), 11);
            let mut one = [LLVMValueAsMetadata(self.c32(1).0)];
            let node = LLVMMDNodeInContext2(self.ctx, one.as_mut_ptr(), 1);
            LLVMSetMetadata(access.0, kind, LLVMMetadataAsValue(self.ctx, node));
        }
    }
    /// Lanes where the mask is off take those of `other`.
    pub fn masked_load(&self, ty: Ty, p: Val, align: u32, mask: Val, other: Val) -> Val {
        if self.lanes(ty) == 1 {
            return self.if_then(mask, other, |ir| ir.load(ty, p, align));
        }
        let align = self.c32(align as i32);
        self.intrinsic("llvm.masked.load", &[ty, self.ptr()], &[p, align, mask, other])
    }
    pub fn masked_store(&self, v: Val, p: Val, align: u32, mask: Val) {
        let ty = self.ty(v);
        if self.lanes(ty) == 1 {
            self.when(mask, |ir| {
                ir.store(v, p, align);
            });
            return;
        }
        let align = self.c32(align as i32);
        self.intrinsic("llvm.masked.store", &[ty, self.ptr()], &[v, p, align, mask]);
    }
    /// One load for each lane's pointer.
    pub fn gather(&self, ty: Ty, ps: Val, align: u32, mask: Val, other: Val) -> Val {
        if self.lanes(ty) == 1 {
            return self.masked_load(ty, ps, align, mask, other);
        }
        let (pty, align) = (self.ty(ps), self.c32(align as i32));
        self.intrinsic("llvm.masked.gather", &[ty, pty], &[ps, align, mask, other])
    }
    /// One store for each lane's pointer, in ascending order of the lanes.
    pub fn scatter(&self, v: Val, ps: Val, align: u32, mask: Val) {
        if self.lanes(self.ty(v)) == 1 {
            return self.masked_store(v, ps, align, mask);
        }
        let (ty, pty, align) = (self.ty(v), self.ty(ps), self.c32(align as i32));
        self.intrinsic("llvm.masked.scatter", &[ty, pty], &[v, ps, align, mask]);
    }
    /// Room in the function's frame, made in its entry block.
    pub fn alloca(&self, ty: Ty, align: u32) -> Val {
        unsafe {
            let here = LLVMGetInsertBlock(self.builder);
            let entry = LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(here));
            match LLVMGetFirstInstruction(entry) {
                first if first.is_null() => LLVMPositionBuilderAtEnd(self.builder, entry),
                first => LLVMPositionBuilderBefore(self.builder, first),
            }
            let v = LLVMBuildAlloca(self.builder, ty.0, NO_NAME);
            LLVMSetAlignment(v, align);
            LLVMPositionBuilderAtEnd(self.builder, here);
            Val(v)
        }
    }
    pub fn copy_bytes(&self, to: Val, from: Val, bytes: Val, align: u32) {
        unsafe {
            LLVMBuildMemCpy(self.builder, to.0, align, from.0, align, bytes.0);
        }
    }
    pub fn fill_bytes(&self, to: Val, byte: u8, bytes: Val, align: u32) {
        let byte = self.const_int(self.i8(), byte.into());
        unsafe {
            LLVMBuildMemSet(self.builder, to.0, byte.0, bytes.0, align);
        }
    }
    pub fn prefetch(&self, p: Val, write: bool, level: i32) {
        let args = [p, self.c32(write.into()), self.c32(level), self.c32(1)];
        self.intrinsic("llvm.prefetch", &[self.ptr()], &args);
    }
    /// What was there, and whether it was `expected` and is `new` now.
    pub fn compare_exchange(&self, p: Val, expected: Val, new: Val) -> (Val, Val) {
        let order = LLVMAtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
        unsafe {
            let both =
                LLVMBuildAtomicCmpXchg(self.builder, p.0, expected.0, new.0, order, order, 0);
            let part = |i| Val(LLVMBuildExtractValue(self.builder, both, i, NO_NAME));
            (part(0), part(1))
        }
    }

    /// Changes an integer in one instruction where the processor has one; gives what was there.
    pub fn atomic_change(&self, how: super::AtomicChange, p: Val, x: Val) -> Val {
        let order = LLVMAtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
        Val(unsafe { LLVMBuildAtomicRMW(self.builder, how, p.0, x.0, order, 0) })
    }

    // Calls.

    /// An intrinsic by its name without the types it is overloaded on, which are given beside.
    pub fn intrinsic(&self, name: &str, types: &[Ty], args: &[Val]) -> Val {
        unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            assert!(id != 0, "LLVM has no intrinsic {name}");
            let mut types: Vec<_> = types.iter().map(|t| t.0).collect();
            let (list, len) = (types.as_mut_ptr(), types.len());
            let value = LLVMGetIntrinsicDeclaration(self.module, id, list, len);
            let ty = LLVMIntrinsicGetType(self.ctx, id, list, len);
            self.call(Fun { value, ty }, args)
        }
    }
    pub fn call(&self, f: Fun, args: &[Val]) -> Val {
        let mut raw: Vec<_> = args.iter().map(|v| v.0).collect();
        let (list, len) = (raw.as_mut_ptr(), raw.len() as u32);
        Val(unsafe { LLVMBuildCall2(self.builder, f.ty, f.value, list, len, NO_NAME) })
    }
    /// Assembly text with a register for each result and operand, as the constraints say. Without
    /// effects it may be moved, and equal ones are one.
    pub fn assembly(
        &self,
        text: &str,
        constraints: &str,
        results: &[Ty],
        args: &[Val],
        effects: bool,
    ) -> Vec<Val> {
        let result = match results {
            [] => self.void(),
            [one] => *one,
            _ => {
                let mut list: Vec<_> = results.iter().map(|t| t.0).collect();
                let (ptr, len) = (list.as_mut_ptr(), list.len() as u32);
                Ty(unsafe { LLVMStructTypeInContext(self.ctx, ptr, len, 0) })
            }
        };
        let types: Vec<Ty> = args.iter().map(|&v| self.ty(v)).collect();
        let ty = self.signature(result, &types);
        let (text, constraints) = (c(text), c(constraints));
        unsafe {
            let value = LLVMGetInlineAsm(
                ty,
                text.as_ptr(),
                text.as_bytes().len(),
                constraints.as_ptr(),
                constraints.as_bytes().len(),
                effects.into(),
                0,
                LLVMInlineAsmDialect::LLVMInlineAsmDialectATT,
                0,
            );
            let call = self.call(Fun { value, ty }, args);
            let at = llvm_sys::LLVMAttributeFunctionIndex;
            for name in ["nounwind", "willreturn", "memory"] {
                // `memory(none)` is the attribute with the value 0.
                if name == "nounwind" || !effects {
                    let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
                    LLVMAddCallSiteAttribute(
                        call.0,
                        at,
                        LLVMCreateEnumAttribute(self.ctx, kind, 0),
                    );
                }
            }
            match results.len() {
                0 => Vec::new(),
                1 => vec![call],
                n => (0..n as u32)
                    .map(|i| Val(LLVMBuildExtractValue(self.builder, call.0, i, NO_NAME)))
                    .collect(),
            }
        }
    }
    /// What LLVM refused since the last call.
    pub fn refused(&self) -> Option<String> {
        let said = std::mem::take(&mut *self.said.borrow_mut());
        (!said.is_empty()).then(|| said.join("\n"))
    }
    /// A function that is elsewhere: one of ours, found by name when the code is loaded.
    pub fn external(&self, name: &str, result: Ty, params: &[Ty]) -> Fun {
        let name_c = c(name);
        let ty = self.signature(result, params);
        unsafe {
            let known = LLVMGetNamedFunction(self.module, name_c.as_ptr());
            let value = if known.is_null() {
                LLVMAddFunction(self.module, name_c.as_ptr(), ty)
            } else {
                known
            };
            Fun { value, ty }
        }
    }
    fn signature(&self, result: Ty, params: &[Ty]) -> LLVMTypeRef {
        let mut params: Vec<_> = params.iter().map(|t| t.0).collect();
        unsafe { LLVMFunctionType(result.0, params.as_mut_ptr(), params.len() as u32, 0) }
    }
    /// Begins a function and goes to its first block.
    pub fn function(&self, name: &str, result: Ty, params: &[Ty]) -> Fun {
        let ty = self.signature(result, params);
        unsafe {
            let value = LLVMAddFunction(self.module, c(name).as_ptr(), ty);
            let fun = Fun { value, ty };
            self.function_attr(fun, "nounwind", None);
            let entry = LLVMAppendBasicBlockInContext(self.ctx, value, c"entry".as_ptr());
            LLVMPositionBuilderAtEnd(self.builder, entry);
            fun
        }
    }
    /// An attribute of a function: one of LLVM's own without a value, or a word with one.
    pub fn function_attr(&self, f: Fun, name: &str, value: Option<&str>) {
        let at = llvm_sys::LLVMAttributeFunctionIndex;
        unsafe {
            let attr = match value {
                Some(v) => LLVMCreateStringAttribute(
                    self.ctx,
                    name.as_ptr().cast(),
                    name.len() as u32,
                    v.as_ptr().cast(),
                    v.len() as u32,
                ),
                None => {
                    let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
                    LLVMCreateEnumAttribute(self.ctx, kind, 0)
                }
            };
            LLVMAddAttributeAtIndex(f.value, at, attr);
        }
    }
    /// Says that the memory a pointer parameter leads to is reached through it alone.
    pub fn no_alias(&self, f: Fun, param: u32) {
        let name = "noalias";
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            let attr = LLVMCreateEnumAttribute(self.ctx, kind, 0);
            LLVMAddAttributeAtIndex(f.value, param + 1, attr);
        }
    }
    pub fn param(&self, f: Fun, i: u32) -> Val {
        Val(unsafe { LLVMGetParam(f.value, i) })
    }
    pub fn ret(&self, v: Option<Val>) {
        unsafe {
            match v {
                Some(v) => LLVMBuildRet(self.builder, v.0),
                None => LLVMBuildRetVoid(self.builder),
            };
        }
    }

    // What intrinsics are used often for.

    fn same(&self, name: &str, args: &[Val]) -> Val {
        self.intrinsic(name, &[self.ty(args[0])], args)
    }
    /// One rounding.
    pub fn fma(&self, a: Val, b: Val, c: Val) -> Val {
        self.same("llvm.fma", &[a, b, c])
    }
    pub fn smin(&self, a: Val, b: Val) -> Val {
        match (self.as_int(a), self.as_int(b)) {
            (Some(x), Some(y)) => {
                if x <= y {
                    a
                } else {
                    b
                }
            }
            _ => self.same("llvm.smin", &[a, b]),
        }
    }
    pub fn smax(&self, a: Val, b: Val) -> Val {
        match (self.as_int(a), self.as_int(b)) {
            (Some(x), Some(y)) => {
                if x >= y {
                    a
                } else {
                    b
                }
            }
            _ => self.same("llvm.smax", &[a, b]),
        }
    }
    pub fn umin(&self, a: Val, b: Val) -> Val {
        self.same("llvm.umin", &[a, b])
    }
    pub fn umax(&self, a: Val, b: Val) -> Val {
        self.same("llvm.umax", &[a, b])
    }
    pub fn sqrt(&self, a: Val) -> Val {
        self.same("llvm.sqrt", &[a])
    }
    pub fn fabs(&self, a: Val) -> Val {
        self.same("llvm.fabs", &[a])
    }
    /// Whether any lane of a mask is on.
    pub fn any(&self, mask: Val) -> Val {
        if self.lanes(self.ty(mask)) == 1 {
            mask
        } else {
            self.same("llvm.vector.reduce.or", &[mask])
        }
    }
    pub fn all(&self, mask: Val) -> Val {
        if self.lanes(self.ty(mask)) == 1 {
            mask
        } else {
            self.same("llvm.vector.reduce.and", &[mask])
        }
    }

    // The module as a whole.

    /// Instructions in all functions that have a body.
    pub fn instructions(&self) -> usize {
        let mut count = 0;
        unsafe {
            let mut f = LLVMGetFirstFunction(self.module);
            while !f.is_null() {
                let mut b = LLVMGetFirstBasicBlock(f);
                while !b.is_null() {
                    let mut i = LLVMGetFirstInstruction(b);
                    while !i.is_null() {
                        count += 1;
                        i = LLVMGetNextInstruction(i);
                    }
                    b = LLVMGetNextBasicBlock(b);
                }
                f = LLVMGetNextFunction(f);
            }
        }
        count
    }
    /// The module as text.
    pub fn text(&self) -> String {
        unsafe {
            let raw = LLVMPrintModuleToString(self.module);
            let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
            LLVMDisposeMessage(raw);
            text
        }
    }
}
