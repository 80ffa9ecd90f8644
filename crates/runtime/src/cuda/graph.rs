//! CUDA graphs: a stream's work, captured once and launched as one.

use super::api::Api;
use super::context::{Context, Handle};
use super::device::Device;
use super::error::CudaError;
use super::stream::{Stream, StreamRef};
use cudarc::driver::sys::{CUgraph_st, CUgraphExec_st, CUstreamCaptureMode::*};
use std::any::Any;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};
use tessera_support::ForkLock;
use tessera_target::device::Memory;

/// The recording of a stream's work. Nothing runs until the graph is launched. A recording that is
/// dropped is given up.
#[must_use = "a recording that is dropped is given up"]
pub struct Capture<'a> {
    stream: &'a Stream,
    open: bool,
    /// It ends on the thread it began on.
    here: PhantomData<*const ()>,
}

impl Stream {
    /// Records what this thread gives the stream from now on. Other threads may use the device
    /// meanwhile.
    pub fn begin_capture(&self) -> Result<Capture<'_>, CudaError> {
        let _current = self.device().make_current()?;
        let api = self.device().context.api;
        // SAFETY: the stream exists.
        unsafe {
            let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            api.cuStreamBeginCapture_v2(self.handle().handle(), mode)
        }?;
        Ok(Capture { stream: self, open: true, here: PhantomData })
    }
}

impl Capture<'_> {
    /// Ends the recording. Fails where something could not be recorded.
    pub fn end(mut self) -> Result<Graph, CudaError> {
        self.open = false;
        let device = self.stream.device();
        let _current = device.make_current()?;
        let mut graph = null_mut();
        // SAFETY: `graph` is a place for one; this thread began the recording.
        unsafe {
            let stream = self.stream.handle().handle();
            device.context.api.cuStreamEndCapture(stream, &mut graph)
        }?;
        if graph.is_null() {
            let message = "the recording of a graph was spoilt by an earlier error";
            return Err(CudaError::refused(Diagnostic::new(Code::E_CAPTURE, message)));
        }
        Ok(Graph { device: device.clone(), raw: Handle(graph) })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let stream = self.stream.handle().handle();
        self.stream.device().context.finally(|api| {
            let mut graph = null_mut();
            // SAFETY: this thread began the recording; what comes of it is thrown away.
            unsafe {
                api.cuStreamEndCapture(stream, &mut graph)?;
                if graph.is_null() { Ok(()) } else { api.cuGraphDestroy(graph) }
            }
        });
    }
}

pub struct Graph {
    device: Arc<Device>,
    raw: Handle<CUgraph_st>,
}

impl Graph {
    /// How many operations were recorded.
    pub fn nodes(&self) -> Result<usize, CudaError> {
        let mut count = 0;
        let api = self.device.context.api;
        // SAFETY: without a place for nodes only their count is given.
        unsafe { api.cuGraphGetNodes(self.raw.0, null_mut(), &mut count) }?;
        Ok(count)
    }

    /// Makes it ready for launches.
    pub fn instantiate(&self) -> Result<GraphExec, CudaError> {
        let _current = self.device.make_current()?;
        let mut exec = null_mut();
        let context = self.device.context;
        // SAFETY: `exec` is a place for one.
        unsafe { context.api.cuGraphInstantiateWithFlags(&mut exec, self.raw.0, 0) }?;
        Ok(GraphExec {
            context,
            raw: Handle(exec),
            buffers: Vec::new(),
            kept: Vec::new(),
            streams: ForkLock::default(),
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is this one's own.
        self.device.context.finally(|api| unsafe { api.cuGraphDestroy(self.raw.0) });
    }
}

/// A graph that can be launched. What it uses on the device must live as long as it does: hand it
/// over with [`Self::keep_buffer`] and [`Self::keep`].
pub struct GraphExec {
    context: Context,
    raw: Handle<CUgraphExec_st>,
    buffers: Vec<Box<dyn Memory>>,
    kept: Vec<Box<dyn Any + Send + Sync>>,
    /// The streams it was launched on.
    streams: ForkLock<Vec<StreamRef>>,
}

impl GraphExec {
    /// Keeps memory that the recorded work uses.
    pub fn keep_buffer(&mut self, buffer: Box<dyn Memory>) {
        self.buffers.push(buffer);
    }

    /// Keeps what else the recorded work uses: functions, other libraries' arrays.
    pub fn keep(&mut self, what: impl Any + Send + Sync) {
        self.kept.push(Box::new(what));
    }

    /// Moves it to the device ahead of the first launch.
    pub fn upload(&self, stream: StreamRef) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        // SAFETY: both exist.
        unsafe { self.context.api.cuGraphUpload(self.raw.0, stream.handle()) }?;
        Ok(())
    }

    /// Launches all of it, in the stream's order.
    ///
    /// # Safety
    /// What holds for each recorded launch holds now: the memory that it reaches is there.
    pub unsafe fn launch(&self, stream: StreamRef) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        // SAFETY: both exist; the rest is the caller's promise.
        unsafe { self.context.api.cuGraphLaunch(self.raw.0, stream.handle()) }?;
        let mut streams = self.streams.lock();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        Ok(())
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // Launches may be in flight: the driver ends them, and the pool waits for them.
        for &stream in self.streams.lock().iter() {
            self.buffers.iter().for_each(|buffer| buffer.used_on(stream.raw()));
        }
        // SAFETY: it is this one's own.
        self.context.finally(|api| unsafe { api.cuGraphExecDestroy(self.raw.0) });
    }
}

/// While it lives, a recording of this thread, or one that forbids it to all, does not spoil at
/// calls that are no part of it: taking memory, loading code, asking how far another stream is.
pub(crate) struct Relaxed {
    api: &'static Api,
    before: Option<u32>,
    here: PhantomData<*const ()>,
}

impl Relaxed {
    pub fn begin(api: &'static Api) -> Self {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        // SAFETY: `mode` is a place for one number, of a mode that exists.
        let done = unsafe { api.cuThreadExchangeStreamCaptureMode(&mut mode) };
        Self { api, before: done.is_ok().then_some(mode), here: PhantomData }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: the mode is the one that was there.
            let _ = unsafe { self.api.cuThreadExchangeStreamCaptureMode(&mut mode) };
        }
    }
}
