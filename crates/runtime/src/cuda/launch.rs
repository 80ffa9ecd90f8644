//! The launch of a kernel. Nothing is allocated on this path, and nothing is waited for.

use super::context::Context;
use super::error::CudaError;
use super::function::{Function, PORTABLE_CLUSTER};
use super::stream::StreamRef;
use cudarc::driver::sys::{
    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as SIZE,
    CU_LAUNCH_PARAM_END_AS_INT as END, CUfunction, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeID::*, CUlaunchAttributeValue, CUlaunchConfig,
};
use std::ffi::c_void;
use std::ptr::{addr_of_mut, null_mut};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};
use tessera_target::device::LaunchShape;

/// The attributes of one launch, in the driver's form.
struct Attributes {
    items: [CUlaunchAttribute; 3],
    count: usize,
}

impl Attributes {
    fn of(shape: &LaunchShape) -> Self {
        let value = CUlaunchAttributeValue { pad: [0; 64] };
        let none = CUlaunchAttribute { id: CU_LAUNCH_ATTRIBUTE_IGNORE, pad: [0; 4], value };
        let mut all = Self { items: [none; 3], count: 0 };
        if let Some([x, y, z]) = shape.cluster {
            let value = all.push(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
            (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z) = (x, y, z);
        }
        if shape.cooperative {
            all.push(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
        }
        if shape.programmatic {
            all.push(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
                .programmaticStreamSerializationAllowed = 1;
        }
        all
    }

    fn push(&mut self, id: CUlaunchAttributeID) -> &mut CUlaunchAttributeValue {
        let item = &mut self.items[self.count];
        self.count += 1;
        item.id = id;
        &mut item.value
    }

    fn config(&mut self, shape: &LaunchShape, stream: StreamRef) -> CUlaunchConfig {
        CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.shared,
            hStream: stream.handle(),
            attrs: self.items.as_mut_ptr(),
            numAttrs: self.count as u32,
        }
    }
}

/// The most parameters of a kernel that has more than one block of them.
const MOST_PARAMS: usize = 32;

impl Function {
    /// Launches the kernel, in the stream's order. `params` are its parameters' bytes, each at its
    /// own alignment, as in a C structure, and `starts` where each begins. More than one are passed
    /// to the driver separately: how it packs those of an alignment above 16 bytes depends on where
    /// a device keeps parameters.
    ///
    /// # Safety
    /// `params` are what the kernel takes. The memory that it accesses exists, without conflicting
    /// accesses of others, until the stream is past the launch. The stream is of this device.
    pub unsafe fn launch(
        &self,
        shape: &LaunchShape,
        params: &[u8],
        starts: &[usize],
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        if shape.grid.contains(&0) {
            return Ok(());
        }
        self.check(shape)?;
        let mut size = params.len();
        let reported = starts.len() < 2;
        if reported && !self.takes(size) {
            return Err(self.mispacked(size));
        }
        let _current = self.device().context.make_current()?;
        let api = self.device().context.api;
        let mut extra = [
            POINTER as usize as *mut c_void,
            params.as_ptr().cast_mut().cast(),
            SIZE as usize as *mut c_void,
            addr_of_mut!(size).cast(),
            END as usize as *mut c_void,
        ];
        let mut each;
        let (list, extra) = match starts {
            [] | [_] => (null_mut(), extra.as_mut_ptr()),
            starts => {
                each = [null_mut::<c_void>(); MOST_PARAMS];
                if starts.len() > MOST_PARAMS || starts.iter().any(|&at| at >= size) {
                    return Err(self.mispacked(size));
                }
                for (to, &at) in each.iter_mut().zip(starts) {
                    *to = params[at..].as_ptr().cast_mut().cast();
                }
                (each.as_mut_ptr(), null_mut())
            }
        };
        let function = self.handle();
        if shape.is_plain() {
            let ([x, y, z], block, shared) = (shape.grid, shape.block, shape.shared);
            let stream = stream.handle();
            // SAFETY: the driver copies the parameters before it returns; the rest is the caller's
            // promise.
            unsafe {
                api.cuLaunchKernel(function, x, y, z, block, 1, 1, shared, stream, list, extra)
            }?;
        } else {
            let mut attributes = Attributes::of(shape);
            let config = attributes.config(shape, stream);
            // SAFETY: as above; `attributes` lives to the end of the call.
            unsafe { api.cuLaunchKernelEx(&config, function, list, extra) }?;
        }
        Ok(())
    }

    /// Whether a launch has parameters of this many bytes, in one block.
    fn takes(&self, bytes: usize) -> bool {
        self.attributes().param_bytes.is_none_or(|least| bytes >= least as usize)
    }

    /// How many clusters of this shape are resident on the device together.
    pub fn max_clusters(&self, shape: &LaunchShape) -> Result<u32, CudaError> {
        self.check(shape)?;
        let context = self.device().context;
        let _current = context.make_current()?;
        let mut attributes = Attributes::of(shape);
        let config = attributes.config(shape, StreamRef::LEGACY);
        let mut clusters = 0;
        // SAFETY: `attributes` lives to the end of the call; `clusters` is a place for one number.
        unsafe { context.api.cuOccupancyMaxActiveClusters(&mut clusters, self.handle(), &config) }?;
        Ok(clusters.max(0).unsigned_abs())
    }

    /// Everything that the driver would refuse without saying why. Also allows what must be allowed
    /// first, which is done once.
    #[inline]
    fn check(&self, shape: &LaunchShape) -> Result<(), CudaError> {
        let most = self.device().info().max_grid;
        let fits = shape.block > 0
            && shape.block <= self.attributes().max_threads
            && shape.grid[0] <= most[0]
            && shape.grid[1] <= most[1]
            && shape.grid[2] <= most[2];
        if !fits {
            return Err(self.misshapen(shape));
        }
        self.set_shared(shape.shared)?;
        match shape.cluster {
            Some(cluster) => self.check_cluster(shape, cluster),
            None => Ok(()),
        }
    }

    fn check_cluster(&self, shape: &LaunchShape, cluster: [u32; 3]) -> Result<(), CudaError> {
        let blocks = cluster.iter().try_fold(1_u32, |all, &n| all.checked_mul(n));
        let divides = (0..3).all(|i| cluster[i] > 0 && shape.grid[i].is_multiple_of(cluster[i]));
        match blocks {
            Some(blocks) if divides && blocks <= 2 * PORTABLE_CLUSTER => self.allow_cluster(blocks),
            _ => Err(self.misshapen(shape)),
        }
    }

    #[cold]
    fn misshapen(&self, shape: &LaunchShape) -> CudaError {
        let (name, most) = (self.name(), self.device().info().max_grid);
        let (threads, blocks) = (self.attributes().max_threads, 2 * PORTABLE_CLUSTER);
        let LaunchShape { grid, block, cluster, .. } = *shape;
        let message = if block == 0 || block > threads {
            format!("`{name}`: expected 1 to {threads} threads in a block, got {block}")
        } else if (0..3).any(|i| grid[i] > most[i]) {
            format!("`{name}`: expected a grid of at most {most:?} blocks, got {grid:?}")
        } else {
            let cluster = cluster.unwrap_or_default();
            format!(
                "`{name}`: expected clusters of at most {blocks} blocks that divide the grid, got {cluster:?} in {grid:?}"
            )
        };
        CudaError::refused(Diagnostic::new(Code::E_LAUNCH_GEOMETRY, message))
    }

    #[cold]
    fn mispacked(&self, got: usize) -> CudaError {
        let wanted = self.attributes().param_bytes.unwrap_or_default();
        let message =
            format!("`{}`: expected {wanted} bytes of parameters or more, got {got}", self.name());
        CudaError::refused(Diagnostic::new(Code::E_UNKNOWN, message))
    }
}

/// A plain launch of one shape, with what the driver is called with beside parameters and stream.
pub(super) struct Prepared {
    context: Context,
    raw: CUfunction,
    grid: [u32; 3],
    block: u32,
    shared: u32,
    /// Its module stays loaded.
    _function: Arc<Function>,
}

// SAFETY: nothing is read or written through the handle; the driver takes it from any thread.
unsafe impl Send for Prepared {}
unsafe impl Sync for Prepared {}

impl Prepared {
    /// `None` for launches with attributes, and for those of no blocks.
    pub fn new(
        function: Arc<Function>,
        shape: &LaunchShape,
        bytes: usize,
    ) -> Result<Option<Self>, CudaError> {
        if !shape.is_plain() || shape.grid.contains(&0) || !function.takes(bytes) {
            return Ok(None);
        }
        function.check(shape)?;
        let (context, raw) = (function.device().context, function.handle());
        let LaunchShape { grid, block, shared, .. } = *shape;
        Ok(Some(Self { context, raw, grid, block, shared, _function: function }))
    }

    /// # Safety
    /// As for [`Function::launch`].
    #[inline]
    pub unsafe fn launch(&self, params: &[u8], stream: StreamRef) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        let mut size = params.len();
        let mut extra = [
            POINTER as usize as *mut c_void,
            params.as_ptr().cast_mut().cast(),
            SIZE as usize as *mut c_void,
            addr_of_mut!(size).cast(),
            END as usize as *mut c_void,
        ];
        let Self { raw, grid: [x, y, z], block, shared, .. } = *self;
        let (api, stream, extra) = (self.context.api, stream.handle(), extra.as_mut_ptr());
        // SAFETY: the driver copies the parameters before it returns; the rest is the caller's promise.
        unsafe {
            api.cuLaunchKernel(raw, x, y, z, block, 1, 1, shared, stream, null_mut(), extra)
        }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_that_were_requested() {
        let mut shape = LaunchShape::new([8, 1, 1], 128);
        assert!(shape.is_plain());
        assert_eq!(Attributes::of(&shape).count, 0);
        shape.cluster = Some([2, 1, 1]);
        shape.programmatic = true;
        let mut all = Attributes::of(&shape);
        let ids: Vec<_> = all.items[..all.count].iter().map(|item| item.id).collect();
        assert_eq!(
            ids,
            [
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            ]
        );
        // SAFETY: these are the fields that were written.
        unsafe {
            assert_eq!(all.items[0].value.clusterDim.x, 2);
            assert_eq!(all.items[1].value.programmaticStreamSerializationAllowed, 1);
        }
        let config = all.config(&shape, StreamRef::LEGACY);
        assert_eq!((config.gridDimX, config.blockDimX, config.numAttrs), (8, 128, 2));
    }
}
