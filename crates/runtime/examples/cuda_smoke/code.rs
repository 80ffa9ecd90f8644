//! Code: assembling, loading, keeping.

use crate::{Checked, KERNELS, Rig, TMA, ensure, refuses};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;
use tessera_diag::Code;
use tessera_runtime::cuda::ptxas::Ptxas;
use tessera_runtime::cuda::*;
use tessera_support::Hash128;
use tessera_target::ObjectStore;

#[derive(Default)]
struct Store(Mutex<BTreeMap<Hash128, Vec<u8>>>);

impl ObjectStore for Store {
    fn get(&self, key: Hash128) -> Option<Vec<u8>> {
        self.0.lock().ok()?.get(&key).cloned()
    }
    fn put(&self, key: Hash128, _: &str, bytes: &[u8]) {
        if let Ok(mut entries) = self.0.lock() {
            entries.insert(key, bytes.to_vec());
        }
    }
}

pub fn cached(rig: &Rig) -> Checked {
    let store = Store::default();
    let options = LoadOptions { max_registers: Some(64), line_info: true, optimisation: Some(4) };
    let load = || {
        let start = Instant::now();
        let module =
            Module::load_cached(&rig.device, KERNELS.as_bytes(), &options, &store, "smoke")?;
        module.function("add")?;
        Ok::<_, CudaError>(start.elapsed())
    };
    let (first, second) = (load()?, load()?);
    let sizes: Vec<usize> = store.0.lock().unwrap().values().map(Vec::len).collect();
    ensure(sizes.len() == 1, format!("{sizes:?}"))?;
    store.0.lock().unwrap().values_mut().for_each(|cubin| cubin.truncate(100));
    load()?;
    if rig.device.info().capability == (9, 0) {
        let special = TMA.replace(".target sm_90", ".target sm_90a");
        let cubin = to_cubin(&rig.device, special.as_bytes(), &LoadOptions::default())?;
        Module::load(&rig.device, &cubin, &LoadOptions::default())?.function("tile")?;
    }
    Ok(format!("{} bytes; assembled in {first:?}, found in {second:?}", sizes[0]))
}

pub fn log(rig: &Rig) -> Checked {
    let wrong = KERNELS.replace("add.f32 %f3", "addd.f32 %f3");
    let load = |text: &str| Module::load(&rig.device, text.as_bytes(), &LoadOptions::default());
    let error = refuses(Code::E_TARGET_CODEGEN, load(&wrong))?;
    ensure(error.to_string().contains("addd"), error.to_string())?;
    let cubin = to_cubin(&rig.device, wrong.as_bytes(), &LoadOptions::default());
    ensure(refuses(Code::E_TARGET_CODEGEN, cubin)?.to_string().contains("addd"), "no log")?;
    let newer = KERNELS.replace(".version 8.0", ".version 99.0");
    let newer = refuses(Code::E_TARGET_CODEGEN, load(&newer))?;
    refuses(Code::E_TARGET_CODEGEN, load("not code"))?;
    Ok(format!("{error} {newer}").replace('\n', " / "))
}

pub fn ptxas(rig: &Rig) -> Checked {
    let ptxas = match Ptxas::find(None, &[]) {
        Ok(ptxas) => ptxas,
        Err(none) => return Ok(format!("skipped: {}", none.render().replace('\n', " / "))),
    };
    let done = ptxas.assemble(KERNELS, &rig.device.info().arch(), &Default::default());
    let done = done.map_err(|refusal| refusal.render())?;
    let module = Module::load(&rig.device, &done.cubin, &LoadOptions::default())?;
    let add = module.function("add")?;
    let reported = done.report.of("add").ok_or("no report")?.registers;
    let loaded = add.attributes().registers;
    ensure(reported == loaded, format!("{reported} registers reported, {loaded} loaded"))?;
    Ok(format!("{} {}: {reported} registers", ptxas.path.display(), ptxas.build))
}
