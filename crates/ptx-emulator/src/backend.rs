//! A backend that needs no GPU: the compiler with the PTX interpreter. Slow; it exists so that all
//! generated code can be run and compared anywhere.

use crate::{Grid, Memory, Options, TensorMap};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics};
use tessera_numerics::Profile;
use tessera_ptx::caps::PtxCaps;
use tessera_ptx::code::{ArrayClass, Classes, Code, MapRecipe};
use tessera_ptx::compile_emulated;
use tessera_support::{Flights, ForkLock, Hash128, StableHasher};
use tessera_target::arrays::{Said, classes_first, classes_said, misaligned};
use tessera_target::frame::{self, Frame};
use tessera_target::{
    ArgValue, Artifact, Backend, BufferArg, Caps, CompileOptions, Footprint, LaunchArgs,
    MachineCaps,
};
use tessera_tile::TileFunc;

/// Few, so that blocks take several groups each.
const MULTIPROCESSORS: u32 = 1;

/// A GPU in software.
#[derive(Clone, Debug)]
pub struct Emulated {
    pub caps: PtxCaps,
    pub options: Options,
    name: &'static str,
    target: String,
}

impl Emulated {
    pub fn new(caps: PtxCaps) -> Self {
        Self::named("ptx", caps)
    }

    /// Under another name than that of GPUs: a backend whose arrays are the host's.
    pub fn named(name: &'static str, caps: PtxCaps) -> Self {
        let target = caps.target.to_string();
        Self { caps, options: Options { races: true, ..Options::default() }, name, target }
    }
}

impl Backend for Emulated {
    fn name(&self) -> &'static str {
        self.name
    }

    fn target(&self) -> &str {
        &self.target
    }

    fn caps(&self) -> Caps {
        Caps {
            backend: self.name,
            arch: self.caps.target.to_string(),
            mma_dtypes: self.caps.mma_dtypes(),
            device_count: 0,
            memory_bytes: 0,
            machine: MachineCaps::Gpu(Box::new(self.caps.gpu.clone())),
            emulated: [("device", "an interpreter of PTX")].into(),
        }
    }

    fn footprint(&self, func: &TileFunc, profile: Profile, arrays: &Said) -> Option<Footprint> {
        let classes = classes_said(&Frame::new(func).ok()?, arrays);
        tessera_ptx::footprint(func, &self.caps, profile, &classes)
    }

    fn compile(
        &self,
        func: &TileFunc,
        options: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        let frame = Frame::new(func)?;
        let classes = classes_first(&frame, options);
        let first = Arc::new(compile_emulated(func, &self.caps, options.profile, &classes)?);
        Ok(Box::new(Kernel {
            func: func.clone(),
            frame,
            variants: ForkLock::new([(classes, first.clone())].into()),
            building: Flights::new(),
            first,
            profile: options.profile,
            machine: self.clone(),
        }))
    }
}

struct Kernel {
    func: TileFunc,
    frame: Frame,
    /// What was compiled first.
    first: Arc<Code>,
    variants: ForkLock<BTreeMap<Classes, Arc<Code>>>,
    building: Flights<Classes>,
    profile: Profile,
    machine: Emulated,
}

/// The address range of an array.
fn reach(b: &BufferArg) -> Option<(*mut u8, usize)> {
    if b.dims.contains(&0) {
        return None;
    }
    let (mut low, mut high) = (0i64, 0i64);
    for (&n, &stride) in b.dims.iter().zip(&b.strides) {
        let far = (n - 1) * stride;
        low += far.min(0);
        high += far.max(0);
    }
    Some((b.data.wrapping_offset(low as isize), (high - low) as usize + b.dtype.bytes()))
}

/// A tensor map in the interpreter's form, for a launch with these words.
pub fn tensor_map(recipe: &MapRecipe, frame: &Frame, words: &[u64]) -> TensorMap {
    let placed = recipe.place(frame, words);
    TensorMap {
        base: placed.address,
        dtype: recipe.dtype,
        dims: placed.dims().to_vec(),
        strides: placed.strides().to_vec(),
        tile: recipe.extent.clone(),
        swizzle: recipe.span,
    }
}

/// Runs code with `blocks` blocks; `words` are those of the launch's frame.
pub fn launch(
    code: &Code,
    frame: &Frame,
    args: &LaunchArgs,
    mut words: Vec<u64>,
    blocks: u32,
    options: &Options,
) -> Result<(), Diagnostics> {
    let mut memory = Memory::new();
    for arg in &args.params {
        if let ArgValue::Buffer(b) = arg
            && let Some((base, len)) = reach(b)
        {
            // SAFETY: the launch borrows the caller's arrays until it returns.
            unsafe { memory.allow(base, len, b.writable) };
        }
    }
    let mut context = vec![0u32; code.context.div_ceil(4) as usize];
    let at = context.as_mut_ptr();
    if !context.is_empty() {
        // SAFETY: the words live to the end of this function, and are read after the run.
        unsafe { memory.allow(at.cast(), 4 * context.len(), true) };
    }
    words[frame::CONTEXT] = at as u64;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let maps: Vec<_> = code.maps.iter().map(|m| tensor_map(m, frame, &words).encode()).collect();
    let mut params: Vec<&[u8]> = vec![&bytes];
    params.extend(maps.iter().map(|m| m.as_slice()));
    let kernel = code.kernel();
    let phases = code.phases(args, blocks.into());
    let grid = Grid { grid: [blocks, phases, 1], dynamic_shared: kernel.dynamic_shared };
    let name = kernel.name.clone();
    crate::run(&code.module, &name, &grid, &params, &memory, options)
        .map_err(|fault| Diagnostics::from(Diagnostic::from(fault)))?;
    drop(memory);
    let called = name.strip_prefix("tessera_").unwrap_or(&name);
    code.tell(called, args.grid, |bytes| {
        let bytes = bytes as usize;
        let all = context.iter().flat_map(|w| w.to_le_bytes()).take(bytes).collect();
        Ok::<Vec<u8>, Diagnostics>(all)
    })?;
    let found = context.first().copied().unwrap_or(0);
    match found.checked_sub(1).and_then(|i| code.sites.get(i as usize)) {
        None => Ok(()),
        Some(site) => {
            let silent = "expected the assertion to hold, got a condition that is false";
            let text = if site.message.is_empty() { silent } else { &site.message };
            Err(Diagnostic::new(ErrorCode::E_ASSERT, text).at(site.loc.clone()).into())
        }
    }
}

impl Kernel {
    fn variant(&self, classes: &Classes) -> Result<Arc<Code>, Diagnostics> {
        let find = || self.variants.lock().get(classes).cloned();
        let make = || {
            let code = compile_emulated(&self.func, &self.machine.caps, self.profile, classes)?;
            let code = Arc::new(code);
            self.variants.lock().insert(classes.clone(), code.clone());
            Ok::<_, Diagnostics>(code)
        };
        Ok(self.building.once(classes, find, make)?.0)
    }
}

impl Artifact for Kernel {
    fn target_text(&self) -> String {
        self.first.module.text()
    }

    fn hash(&self) -> Hash128 {
        let mut h = StableHasher::new();
        h.write_str("target.ptx.emulated");
        h.write_str(&self.first.module.hash().to_string());
        h.finish()
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        let mut words = Vec::new();
        let mut classes: Classes = vec![ArrayClass::default(); self.frame.params.len()];
        let mut error = None;
        self.frame.fill(&self.func, args, &mut words, |place, _, b| {
            let param = &self.frame.params[place];
            classes[place] = ArrayClass::of_param(&param.kind, b);
            if error.is_none() {
                error = misaligned(&param.name, b, self.func.loc.clone());
            }
        })?;
        if let Some(error) = error {
            return Err(error.into());
        }
        let code = self.variant(&classes)?;
        let blocks = u32::try_from(code.blocks(args, MULTIPROCESSORS)).unwrap_or(u32::MAX);
        launch(&code, &self.frame, args, words, blocks, &self.machine.options)
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        self.first.notes.clone()
    }
}
