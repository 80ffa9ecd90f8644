//! From a Tile IR function to machine code in memory, for one set of layouts.

use crate::asm_text::Text;
use crate::code::{self, Code, Printing, Site};
use crate::frame::{Frame, Layouts};
use crate::isa::Isa;
use crate::llvm::{Ir, Loaded, Machine, version};
use crate::{group, lane};
use std::time::{Duration, Instant};
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics};
use tessera_ir::{OpId, Type};
use tessera_numerics::Profile;
use tessera_support::{Hash128, StableHasher};
use tessera_target::ObjectStore;
use tessera_tile::{KernelKind, TileFunc, TileOp, is_asm, kind_of};

/// Raised when the same Tile IR may give other code than before.
const VERSION: u64 = 3;
const ENTRY: &str = "kernel";

/// Words of arguments, scratch memory, and which groups (or parts) to run; gives the number of the
/// site where it stopped, or 0.
pub type Entry = unsafe extern "C" fn(*const u64, *mut u8, i64, i64) -> i64;

/// Code for one set of layouts.
pub struct Variant {
    pub entry: Entry,
    pub scratch_bytes: u64,
    /// 8-byte places that each lane of a group has in memory.
    pub slots: u64,
    /// The kernel divides its work itself, into the number of parts that it is given.
    pub parts: bool,
    pub sites: Vec<Site>,
    pub prints: Vec<Printing>,
    pub notes: Vec<(&'static str, String)>,
    pub instructions: usize,
    pub object_bytes: usize,
    pub from_cache: bool,
    pub stages: Vec<(&'static str, Duration)>,
    _loaded: Loaded,
}

pub struct Target<'a> {
    pub func: &'a TileFunc,
    pub frame: &'a Frame,
    pub isa: Isa,
    pub profile: Profile,
}

impl Target<'_> {
    /// The module, and what came with it.
    fn emit(&self, layouts: &Layouts) -> (Ir, Code) {
        let ir = Ir::new(&self.func.name);
        let mut code = Code::default();
        let params = [ir.ptr(), ir.ptr(), ir.i64(), ir.i64()];
        let f = ir.function(ENTRY, ir.i64(), &params);
        ir.function_attr(f, "prefer-vector-width", Some("512"));
        ir.function_attr(f, "min-legal-vector-width", Some("512"));
        ir.no_alias(f, 0);
        ir.no_alias(f, 1);
        let args = [0, 1, 2, 3].map(|i| ir.param(f, i));
        let (func, frame) = (self.func, self.frame);
        let emit = match kind_of(func) {
            Some(KernelKind::Lane) => lane::emit,
            Some(KernelKind::Group) | None => group::emit,
        };
        emit(&ir, self.isa, self.profile, func, frame, layouts, &mut code, args);
        (ir, code)
    }

    /// The module as text.
    pub fn text(&self, layouts: &Layouts) -> String {
        self.emit(layouts).0.text()
    }

    /// What names the code: everything it depends on beside this compiler's own build.
    fn key(&self, layouts: &Layouts) -> Hash128 {
        let mut h = StableHasher::new();
        h.write_str("target.cpu");
        h.write_u64(VERSION);
        h.write_str(&version());
        h.write_str(std::env::consts::ARCH);
        h.write_str(std::env::consts::OS);
        h.write_str(self.isa.name());
        let (cpu, features) = self.isa.llvm();
        h.write_str(cpu);
        h.write_str(features);
        h.write_str(self.profile.name());
        h.write_str(&self.func.hash().to_string());
        layouts.iter().for_each(|&l| h.write_u64(l.into()));
        h.finish()
    }

    /// The module as an object file.
    fn generate(&self, ir: &Ir) -> Result<Vec<u8>, String> {
        let (cpu, features) = self.isa.llvm();
        let machine = Machine::new(cpu, features)?;
        machine.verify(ir)?;
        machine.run_passes(ir, PASSES)?;
        let object = machine.object(ir)?;
        ir.refused().map_or(Ok(object), Err)
    }

    /// The error for the first text of the kernel that the assembler, or the linker, does not take by itself.
    fn refused_text(&self) -> Option<Diagnostic> {
        self.func.walk().into_iter().filter(|&id| is_asm(self.func.ops[id].code)).find_map(|id| {
            let op = &self.func.ops[id];
            let ir = Ir::new("text");
            let text = Text::new(self.func, op).ok()?;
            let f = ir.function(ENTRY, ir.void(), &text.parameters(&ir));
            let args: Vec<_> = (0..op.operands.len() as u32).map(|i| ir.param(f, i)).collect();
            text.call(&ir, &args, true);
            ir.ret(None);
            let loads = |object: Vec<u8>| Loaded::new(&object, &code::symbols())?.address(ENTRY);
            match self.generate(&ir).map(loads) {
                Ok(Ok(_)) => None,
                Ok(Err(why)) => Some(text.unlinked(op, &why)),
                Err(why) => Some(text.refused(op, &why)),
            }
        })
    }

    pub fn build(
        &self,
        layouts: &Layouts,
        store: &dyn ObjectStore,
    ) -> Result<Variant, Diagnostics> {
        let broken = |why: String| -> Diagnostics {
            Diagnostic::new(
                ErrorCode::E_UNKNOWN,
                format!("the code generator refused the kernel: {why}"),
            )
            .at(self.func.loc.clone())
            .into()
        };
        let mut stages = Vec::new();
        // LLVM has lists for the whole process: a child forked in the middle of a change would find them broken.
        let _unforked = tessera_support::unforked();
        let start = Instant::now();
        let (ir, code) = self.emit(layouts);
        let instructions = ir.instructions();
        stages.push(("emit LLVM IR", start.elapsed()));
        let key = self.key(layouts);
        let start = Instant::now();
        let load = |object: &[u8]| -> Result<(Loaded, usize), String> {
            let loaded = Loaded::new(object, &code::symbols())?;
            let address = loaded.address(ENTRY)?;
            Ok((loaded, address))
        };
        // One that does not fit this process, whatever the reason, is made anew.
        let found = store.get(key).and_then(|object| Some((load(&object).ok()?, object.len())));
        let from_cache = found.is_some();
        let ((loaded, address), object_bytes) = match found {
            Some(found) => {
                stages.push(("find in cache", start.elapsed()));
                found
            }
            None => {
                let refused = |why: String| -> Diagnostics {
                    self.refused_text().map_or_else(|| broken(why), Into::into)
                };
                let object = self.generate(&ir).map_err(refused)?;
                stages.push(("LLVM", start.elapsed()));
                let start = Instant::now();
                let loaded = load(&object).map_err(refused)?;
                let about =
                    format!("{} for {} ({})", self.func.name, self.isa, self.profile.name());
                store.put(key, &about, &object);
                stages.push(("load", start.elapsed()));
                (loaded, object.len())
            }
        };
        // SAFETY: the function was emitted with this signature, and is there while `loaded` is.
        let entry = unsafe { std::mem::transmute::<usize, Entry>(address) };
        Ok(Variant {
            entry,
            scratch_bytes: code.scratch_bytes(),
            slots: code.slots,
            parts: code.parts,
            sites: code.sites,
            prints: code.prints,
            notes: code.notes,
            instructions,
            object_bytes,
            from_cache,
            stages,
            _loaded: loaded,
        })
    }
}

/// Code comes in SSA form with its vectors written out; what is left to do for LLVM is to find
/// what was emitted twice and to take addresses out of loops.
const PASSES: &str = "function(early-cse,loop-mssa(licm),instsimplify)";

/// Whether groups must run one after another, in order: where they fold into the same elements, or
/// print.
pub fn is_serial(func: &TileFunc, profile: Profile) -> bool {
    func.walk().into_iter().any(|id| {
        let op = &func.ops[id];
        match op.code {
            TileOp::Print => true,
            TileOp::Accumulate => {
                matches!(func.ty(op.operands[0]), Type::View { privilege, .. } if privilege.reduces())
            }
            TileOp::Atomic => profile != Profile::Default,
            _ => false,
        }
    })
}

/// Atomic changes of the caller's arrays in a kernel.
#[derive(Copy, Clone, PartialEq)]
pub enum Atomics {
    None,
    /// Only in counted loops: the kernel does not wait for another one.
    Bounded,
    /// With a `while`, which may wait for another launch.
    Waiting,
}

impl Atomics {
    pub fn of(func: &TileFunc) -> Self {
        let ops = func.walk();
        let atomic = |id: &OpId| {
            let op = &func.ops[*id];
            op.code == TileOp::Atomic && matches!(func.ty(op.operands[0]), Type::View { .. })
        };
        if !ops.iter().any(atomic) {
            Self::None
        } else if ops.iter().any(|&id| func.ops[id].code == TileOp::While) {
            Self::Waiting
        } else {
            Self::Bounded
        }
    }
}
