//! A build without CUDA: there are no devices, and every other call is an error that says so.

use super::{DeviceRow, MemoryStats};
use crate::backends::{NOT_IN_BUILD, PTX};
use std::path::PathBuf;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::{BufferArg, Queue};

fn absent<T>() -> Result<T, Diagnostics> {
    let message = format!("the backend `{PTX}` is not available: {NOT_IN_BUILD}");
    Err(Diagnostic::new(Code::E_DRIVER, message).into())
}

pub fn missing() -> Option<String> {
    Some(NOT_IN_BUILD.into())
}

pub fn devices() -> Result<Vec<DeviceRow>, Diagnostics> {
    absent()
}

pub fn device_of(_: u64) -> u32 {
    0
}

pub fn synchronize(_: u32, _: Option<u64>) -> Result<(), Diagnostics> {
    absent()
}

pub fn memory_stats(_: u32) -> Result<MemoryStats, Diagnostics> {
    absent()
}

pub fn trim(_: u32) -> Result<u64, Diagnostics> {
    absent()
}

pub fn ptxas(_: &[PathBuf]) -> Result<String, Diagnostics> {
    absent()
}

pub enum Memory {}

impl Memory {
    pub fn new(_: Queue, _: u64) -> Result<Self, Diagnostics> {
        absent()
    }

    /// Nobody has an address to lend.
    pub fn lent(_: u64, _: u64, _: Queue) -> Self {
        unreachable!("there are no devices")
    }

    pub fn address(&self) -> u64 {
        match *self {}
    }

    pub fn device(&self) -> u32 {
        match *self {}
    }

    pub fn last(&self) -> u64 {
        match *self {}
    }

    pub fn used_on(&self, _: u64) {
        match *self {}
    }

    pub fn fill(&self, _: u8, _: u64) -> Result<(), Diagnostics> {
        match *self {}
    }
}

pub fn read(_: &BufferArg, _: Queue, _: &mut [u8]) -> Result<(), Diagnostics> {
    absent()
}

pub fn write(_: &BufferArg, _: Queue, _: &[u8]) -> Result<(), Diagnostics> {
    absent()
}

pub fn copy_on_device(_: u64, _: u64, _: u64, _: Queue) -> Result<(), Diagnostics> {
    absent()
}

pub enum Stream {}

impl Stream {
    pub fn new(_: u32) -> Result<Self, Diagnostics> {
        absent()
    }

    pub fn handle(&self) -> u64 {
        match *self {}
    }

    pub fn device(&self) -> u32 {
        match *self {}
    }
}

pub enum Mark {}

impl Mark {
    pub fn new(_: Queue, _: bool) -> Result<Self, Diagnostics> {
        absent()
    }

    pub fn is_past(&self) -> Result<bool, Diagnostics> {
        match *self {}
    }

    pub fn synchronize(&self) -> Result<(), Diagnostics> {
        match *self {}
    }

    pub fn seconds_since(&self, _: &Mark) -> Result<f64, Diagnostics> {
        match *self {}
    }
}

pub fn wait_for(_: Queue, _: &[u64]) -> Result<(), Diagnostics> {
    absent()
}

pub fn hold_back(_: Queue, _: &[u64]) -> Result<(), Diagnostics> {
    absent()
}

pub enum Graph {}

impl Graph {
    pub fn nodes(&self) -> usize {
        match *self {}
    }

    pub fn device(&self) -> u32 {
        match *self {}
    }

    pub fn replay(&self, _: u64) -> Result<(), Diagnostics> {
        match *self {}
    }
}

pub fn begin_recording(_: u32) -> Result<u64, Diagnostics> {
    absent()
}

pub fn end_recording() -> Result<Graph, Diagnostics> {
    absent()
}

pub fn is_recording() -> bool {
    false
}

pub fn drop_recording() {}

pub fn launches() -> (u64, Queue) {
    (0, Queue::default())
}
