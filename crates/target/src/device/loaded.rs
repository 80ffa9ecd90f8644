//! Code on the devices that run it.

use super::{Device, DeviceId};
use crate::ObjectStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_support::{Flights, ForkLock, Hash128};

/// What one piece of code became on each device that ran it: a loaded function, with what launches there need.
///
/// Devices of one architecture load one after another, so that what the first of them assembled is there for the others.
/// Devices of different architectures do not wait for each other.
pub struct LoadedCode<T> {
    there: ForkLock<BTreeMap<DeviceId, T>>,
    /// By architecture.
    loading: Flights<String>,
    /// What was assembled and a store does not keep.
    assembled: ForkLock<BTreeMap<Hash128, Arc<[u8]>>>,
}

impl<T> Default for LoadedCode<T> {
    fn default() -> Self {
        let (there, assembled) = (ForkLock::default(), ForkLock::default());
        Self { there, loading: Flights::new(), assembled }
    }
}

impl<T: Clone> LoadedCode<T> {
    pub fn get(&self, on: DeviceId) -> Option<T> {
        self.there.lock().get(&on).cloned()
    }

    /// One of them, for reports.
    pub fn any(&self) -> Option<T> {
        self.there.lock().values().next().cloned()
    }

    /// What is on the device; where there is nothing, what `load` loads with this store.
    pub fn on<E>(
        &self,
        device: &dyn Device,
        store: &dyn ObjectStore,
        load: impl FnOnce(&dyn ObjectStore) -> Result<T, E>,
    ) -> Result<T, E> {
        let (id, arch) = (device.id(), device.info().arch.clone());
        let make = || {
            let loaded = load(&Shared { store, assembled: &self.assembled })?;
            self.there.lock().insert(id, loaded.clone());
            Ok(loaded)
        };
        Ok(self.loading.once(&arch, || self.get(id), make)?.0)
    }
}

/// A store that holds what another one does not keep, for the other devices of a process.
struct Shared<'a> {
    store: &'a dyn ObjectStore,
    assembled: &'a ForkLock<BTreeMap<Hash128, Arc<[u8]>>>,
}

impl ObjectStore for Shared<'_> {
    fn get(&self, key: Hash128) -> Option<Vec<u8>> {
        let held = self.assembled.lock().get(&key).cloned();
        held.map(|bytes| bytes.to_vec()).or_else(|| self.store.get(key))
    }

    fn put(&self, key: Hash128, about: &str, bytes: &[u8]) {
        self.store.put(key, about, bytes);
        if self.store.get(key).is_none() {
            self.assembled.lock().insert(key, bytes.into());
        }
    }
}
