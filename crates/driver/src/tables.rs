//! Constant arrays of compiled kernels, where the kernels run.

use crate::device::{self, Memory};
use crate::pack::row_major;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_frontend::Table;
use tessera_support::ForkLock;
use tessera_target::device::DeviceId;
use tessera_target::{BufferArg, Queue};

pub struct Tables {
    items: Vec<Arc<Table>>,
    /// Their copies on devices, made at the first launch there.
    there: ForkLock<BTreeMap<DeviceId, Vec<Memory>>>,
}

impl Tables {
    pub fn new(items: Vec<Arc<Table>>) -> Self {
        Self { items, there: ForkLock::new(BTreeMap::new()) }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// In host memory, for as long as this lives.
    pub fn here(&self) -> Vec<BufferArg> {
        let view = |t: &Arc<Table>| view(t, t.data() as *mut u8);
        self.items.iter().map(view).collect()
    }

    /// On the device of a queue.
    pub fn there(&self, queue: Queue) -> Result<Vec<BufferArg>, Diagnostics> {
        if self.items.is_empty() {
            return Ok(Vec::new());
        }
        let mut there = self.there.lock();
        let made = match there.entry(queue.device) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => place.insert(self.copied(queue)?),
        };
        let rows = self.items.iter().zip(made.iter());
        Ok(rows.map(|(table, memory)| view(table, memory.address() as *mut u8)).collect())
    }

    fn copied(&self, queue: Queue) -> Result<Vec<Memory>, Diagnostics> {
        let mut made = Vec::new();
        for table in &self.items {
            let bytes = table.bytes();
            let memory = Memory::new(queue, bytes.len() as u64)?;
            device::write(&view(table, memory.address() as *mut u8), queue, &bytes)?;
            made.push(memory);
        }
        // Launches on other streams read them too.
        device::synchronize(queue.device, Some(queue.stream))?;
        Ok(made)
    }
}

fn view(table: &Table, data: *mut u8) -> BufferArg {
    let strides = row_major(&table.dims, table.dtype);
    BufferArg { data, dims: table.dims.clone(), strides, dtype: table.dtype, writable: false }
}
