//! The CPU as a backend.

use crate::build::{Atomics, Target, Variant, is_serial};
use crate::code::supported;
use crate::frame::{Frame, Layouts, has_matmul, layouts_first};
use crate::isa::Isa;
use crate::launch::{self, About};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_diag::Diagnostics;
use tessera_ir::Attr;
use tessera_numerics::{DType, Profile};
use tessera_support::{Flights, ForkLock, Hash128, StableHasher};
use tessera_target::{
    Artifact, Backend, Caps, CompileOptions, CpuCaps, HOST_SHARED_BYTES, LaunchArgs, MachineCaps,
    ObjectStore, Settled, beside,
};
use tessera_tile::ops::asm::{AsmArch, AsmTarget};
use tessera_tile::{AsmHost, KernelKind, TileFunc, choose_asm, kind_of};

/// The host's processor; `isa` says which of its instructions are used.
#[derive(Copy, Clone, Debug)]
pub struct Cpu {
    pub isa: Isa,
    /// Threads of a launch; 0 for as many as [`set_threads`] says.
    pub threads: usize,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Threads of every launch from here on; 0 for as many as there are cores.
pub fn set_threads(threads: usize) {
    THREADS.store(threads, Ordering::Relaxed);
}

/// How many threads a launch may use.
pub fn threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => cores(),
        n => n,
    }
}

/// Queried once: the operating system reads several files for it.
fn cores() -> usize {
    static CORES: AtomicUsize = AtomicUsize::new(0);
    match CORES.load(Ordering::Relaxed) {
        0 => {
            let n = std::thread::available_parallelism().map_or(1, usize::from);
            CORES.store(n, Ordering::Relaxed);
            n
        }
        n => n,
    }
}

impl Cpu {
    pub fn new(isa: Isa) -> Self {
        Self { isa, threads: 0 }
    }

    /// The function with the assembly texts that run here, and no others.
    fn texts(&self, func: &TileFunc, profile: Profile) -> Result<Option<TileFunc>, Diagnostics> {
        let strict = profile == Profile::Strict;
        let here = cfg!(target_arch = "x86_64") && !strict;
        let name = match strict {
            true => "the CPU in the profile strict".to_string(),
            false => format!("the CPU ({} {})", std::env::consts::ARCH, self.isa),
        };
        let has = |arch: &AsmArch| match arch {
            AsmArch::X86(name) => Isa::from_name(name).is_some_and(|isa| self.isa >= isa),
            AsmArch::Sm { .. } => false,
        };
        let target = here.then_some(AsmTarget::X86_64);
        choose_asm(func, &AsmHost { target, has: &has, name: &name })
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn caps(&self) -> Caps {
        let mma_dtypes =
            if self.isa == Isa::Amx { vec![DType::BF16, DType::I8, DType::U8] } else { Vec::new() };
        Caps {
            backend: "cpu",
            arch: self.isa.name().into(),
            mma_dtypes,
            device_count: 1,
            memory_bytes: 0,
            machine: MachineCaps::Cpu(CpuCaps {
                warp_size: crate::WARP,
                max_lanes: 1 << 16,
                shared_bytes: HOST_SHARED_BYTES,
            }),
            emulated: [("async_copy", "a synchronous copy"), ("lanes", "vectors with a mask")]
                .into(),
        }
    }

    fn compile(
        &self,
        func: &TileFunc,
        options: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        tessera_ir::verify(func)?;
        tessera_tile::has_elements(func)?;
        let chosen = self.texts(func, options.profile)?;
        let func = chosen.as_ref().unwrap_or(func);
        let split = tessera_tile::split_asm(func);
        let func = split.as_ref().unwrap_or(func);
        let always = tessera_tile::without_slow_paths(func);
        let func = always.as_ref().unwrap_or(func);
        let expanded = tessera_tile::expand_parts(func, tessera_tile::Scans::Ordered);
        let func = expanded.as_ref().unwrap_or(func);
        supported(func)?;
        let (frame, matmul) = (Frame::new(func)?, has_matmul(func));
        let kernel = Kernel(Arc::new(Core {
            func: func.clone(),
            first: layouts_first(&frame, options, matmul),
            matmul,
            frame,
            cpu: *self,
            profile: options.profile,
            about: Arc::new(About {
                name: func.name.clone(),
                kind: kind_of(func).unwrap_or(KernelKind::Group),
                serial: is_serial(func, options.profile),
                threads: self.threads,
                atomics: Atomics::of(func),
                flush: func.attrs.get("flush").and_then(Attr::as_bool) == Some(true),
                last: ForkLock::default(),
            }),
            store: options.store.clone(),
            variants: ForkLock::default(),
            building: Flights::new(),
        }));
        // Code for other layouts is compiled when such arrays come.
        kernel.variant(&kernel.first)?;
        Ok(Box::new(kernel))
    }
}

/// A kernel with code for the layouts that were met.
pub struct Kernel(Arc<Core>);

impl Deref for Kernel {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

/// What a thread that builds code for it shares with the kernel, which it may outlast.
pub struct Core {
    pub func: TileFunc,
    pub frame: Frame,
    /// The layouts that code was compiled for first.
    first: Layouts,
    /// Whether it has a matmul.
    pub matmul: bool,
    pub cpu: Cpu,
    pub profile: Profile,
    pub about: Arc<About>,
    store: Arc<dyn ObjectStore>,
    variants: ForkLock<BTreeMap<Layouts, Arc<Variant>>>,
    building: Flights<Layouts>,
}

impl Core {
    fn target(&self) -> Target<'_> {
        Target { func: &self.func, frame: &self.frame, isa: self.cpu.isa, profile: self.profile }
    }

    fn found(&self, layouts: &Layouts) -> Option<Arc<Variant>> {
        self.variants.lock().get(layouts).cloned()
    }

    fn build(&self, layouts: &Layouts) -> Result<Arc<Variant>, Diagnostics> {
        let make = || {
            let variant = Arc::new(self.target().build(layouts, &*self.store)?);
            self.variants.lock().insert(layouts.clone(), variant.clone());
            Ok::<_, Diagnostics>(variant)
        };
        Ok(self.building.once(layouts, || self.found(layouts), make)?.0)
    }
}

impl Kernel {
    pub fn variant(&self, layouts: &Layouts) -> Result<Arc<Variant>, Diagnostics> {
        if let Some(variant) = self.found(layouts) {
            return Ok(variant);
        }
        let (core, layouts) = (self.0.clone(), layouts.clone());
        beside(move || core.build(&layouts))
    }
}

impl Artifact for Kernel {
    fn target_text(&self) -> String {
        self.target().text(&self.first)
    }

    fn hash(&self) -> Hash128 {
        let mut h = StableHasher::new();
        h.write_str("target.cpu");
        h.write_str(self.cpu.isa.name());
        h.write_str(self.profile.name());
        h.write_str(&self.func.hash().to_string());
        h.finish()
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        launch::launch(self, args)
    }

    fn settle_here(&self, args: &LaunchArgs) -> Option<Arc<dyn Settled>> {
        launch::settle(self, args)
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        let last = self.about.last.lock().clone();
        let (variant, threads) = match last {
            Some((variant, threads)) => (Some(variant), threads),
            None => (self.found(&self.first), self.about.threads()),
        };
        let mut out = vec![
            ("isa", self.cpu.isa.to_string()),
            ("vector_bits", (8 * self.cpu.isa.vector_bytes()).to_string()),
            ("threads", threads.to_string()),
        ];
        if let Some(variant) = variant {
            out.push(("llvm_instructions", variant.instructions.to_string()));
            out.push(("object_bytes", variant.object_bytes.to_string()));
            out.push(("scratch_bytes", variant.scratch_bytes.to_string()));
            out.push(("from_disk_cache", variant.from_cache.to_string()));
            for (stage, time) in &variant.stages {
                let name = match *stage {
                    "emit LLVM IR" => "emit_ms",
                    "LLVM" => "llvm_ms",
                    "find in cache" => "cache_ms",
                    _ => "load_ms",
                };
                out.push((name, format!("{:.1}", time.as_secs_f64() * 1e3)));
            }
            out.extend(variant.notes.iter().cloned());
        }
        out
    }

    fn code_bytes(&self) -> usize {
        self.variants.lock().values().map(|v| v.object_bytes).sum()
    }
}
