//! The kernels of plans: each is compiled once in the process, for all plans that have it.

use crate::artifacts::Artifacts;
use crate::backends::Choice;
use crate::mode::Mode;
use crate::{cache, knobs};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tessera_diag::Diagnostics;
use tessera_ir::{PassContext, PassManager, PassOptions};
use tessera_lower::{Bounds, Canonicalise};
use tessera_support::{Flights, StableHasher};
use tessera_target::arrays::Said;
use tessera_target::{Artifact, CompileOptions, helper, is_helper};
use tessera_tile::TileFunc;

type Key = String;

static KERNELS: Artifacts = Artifacts::new();
/// Those that are being compiled: another plan that has one waits for it.
static BUILDING: Flights<Key> = Flights::new();
static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// How many kernels of plans were compiled in this process.
pub fn compiled_kernels() -> usize {
    COMPILED.load(Ordering::Relaxed)
}

/// Those that are alive, and the bytes of their code.
pub fn census() -> (usize, usize) {
    KERNELS.census()
}

/// More are not worth a thread here: kernels are small, and the caller's machine has other work.
const THREADS: usize = 8;

/// The code of these functions, in order; missing ones are compiled in parallel, each for arrays of
/// the layouts `said`. `made` are those that have been through the passes already. With how many this call compiled.
pub fn compile(
    funcs: &[TileFunc],
    said: &[Said],
    made: &BTreeSet<usize>,
    choice: &Choice,
    mode: Mode,
) -> Result<(Vec<Arc<dyn Artifact>>, usize), Diagnostics> {
    choice.caps()?;
    let keys: Vec<Key> = funcs.iter().map(|f| key(f, choice, mode)).collect();
    // Found and compiled kernels are referenced from now on, so that none is dropped before it is
    // returned.
    let held: Vec<Mutex<Option<Arc<dyn Artifact>>>> =
        KERNELS.get_all(&keys).into_iter().map(Mutex::new).collect();
    let hold = |i: usize| held[i].lock().unwrap_or_else(|e| e.into_inner());
    let missing: Vec<usize> = (0..funcs.len()).filter(|&i| hold(i).is_none()).collect();
    let (next, compiled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let errors: Mutex<Option<Diagnostics>> = Mutex::new(None);
    let store = cache::store()?;
    let work = || {
        while let Some(&i) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (profile, store) = (mode.profile, store.clone());
            let arrays = said[i].clone();
            let options = CompileOptions { profile, store, arrays, call: Vec::new() };
            let make = || {
                let artifact = one(&funcs[i], made.contains(&i), choice, mode, &options)?;
                COMPILED.fetch_add(1, Ordering::Relaxed);
                compiled.fetch_add(1, Ordering::Relaxed);
                KERNELS.insert(keys[i].clone(), &artifact);
                Ok(artifact)
            };
            match BUILDING.once(&keys[i], || KERNELS.get(&keys[i]), make) {
                Ok((artifact, _)) => *hold(i) = Some(artifact),
                Err(found) => {
                    errors.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(found);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(missing.len()) {
            // Without it this one does it all.
            let _ = helper().spawn_scoped(scope, || {
                is_helper();
                work();
            });
        }
        work();
    });
    if let Some(errors) = errors.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(errors);
    }
    let all = (0..funcs.len()).filter_map(|i| hold(i).take()).collect();
    Ok((all, compiled.into_inner()))
}

fn key(func: &TileFunc, choice: &Choice, mode: Mode) -> Key {
    let mut h = StableHasher::new();
    h.write_str(&func.hash().to_string());
    h.write_str(choice.backend.name());
    h.write_str(choice.backend.target());
    h.write_str(&choice.backend.caps().arch);
    h.write_u64(mode.tag());
    h.finish().to_string()
}

fn one(
    func: &TileFunc,
    made: bool,
    choice: &Choice,
    mode: Mode,
    options: &CompileOptions,
) -> Result<Arc<dyn Artifact>, Diagnostics> {
    let mut func = func.clone();
    let passes = PassOptions { verify_each: knobs::VERIFY.is_on(), dump_dir: knobs::dump_dir() };
    if made {
        // What would be refused in a user's kernel was settled when this one was made.
        let passes = PassManager::new(passes).with(Bounds).with(Canonicalise);
        passes.run(&mut func, &mut PassContext::default())?;
    } else {
        mode.pipeline(passes, choice.is_on_device()).run(&mut func, &mut PassContext::default())?;
    }
    let func = crate::specialise::without(&func, mode.off);
    let own = choice.backend.compile(&func, options)?;
    Ok(Arc::from(crate::launches::planned(own, &func, choice, mode)))
}
