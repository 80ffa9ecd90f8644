//! Tensor maps: they describe an array and its boxes to TMA (`cuTensorMapEncodeTiled`).

mod spec;

pub use spec::{
    Interleave, L2Promotion, MapDType, OobFill, Swizzle, TensorMapFault, TensorMapSpec,
};

use super::device::Device;
use super::error::CudaError;
use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType as RawDType, CUtensorMapFloatOOBfill as RawFill,
    CUtensorMapInterleave as RawInterleave, CUtensorMapL2promotion as RawPromotion,
    CUtensorMapSwizzle as RawSwizzle,
};
use std::collections::BTreeMap;
use std::ffi::c_void;
use tessera_diag::{Code, Diagnostic};

/// A map as kernels take it: 128 bytes among their parameters, aligned to 64 bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct TensorMap(CUtensorMap);

impl TensorMap {
    pub const BYTES: usize = size_of::<CUtensorMap>();

    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        // SAFETY: it is words without gaps, as long as said.
        unsafe { &*(&raw const self.0).cast() }
    }
}

impl Device {
    /// The map for what `spec` describes. Recent ones are kept: arrays are often used again.
    pub fn tensor_map(&self, spec: &TensorMapSpec) -> Result<TensorMap, CudaError> {
        if let Some(map) = self.tensor_maps.lock().get(spec) {
            return Ok(map);
        }
        if !self.info().tensor_maps {
            let message = format!("{} has no tensor maps", self.info().name);
            return Err(CudaError::refused(Diagnostic::new(Code::E_UNSUPPORTED, message)));
        }
        spec.check()?;
        let map = self.encode(spec)?;
        self.tensor_maps.lock().put(*spec, map);
        Ok(map)
    }

    fn encode(&self, spec: &TensorMapSpec) -> Result<TensorMap, CudaError> {
        let _current = self.make_current()?;
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: every row is as long as the rank says; `map` is a place for one, aligned as it
        // must be.
        unsafe {
            self.context.api.cuTensorMapEncodeTiled(
                &mut map,
                dtype(spec.dtype),
                spec.rank as u32,
                spec.address as *mut c_void,
                spec.dims.as_ptr(),
                spec.strides.as_ptr(),
                spec.extents.as_ptr(),
                spec.steps.as_ptr(),
                interleave(spec.interleave),
                swizzle(spec.swizzle),
                promotion(spec.promotion),
                fill(spec.fill),
            )
        }
        .map_err(|failure| {
            let (rank, dims) = (spec.rank, &spec.dims[..spec.rank]);
            let (strides, extents) = (&spec.strides[..rank - 1], &spec.extents[..rank]);
            CudaError::from(failure).note(format!(
                "the tensor map: extents {dims:?}, strides {strides:?} bytes, box {extents:?}"
            ))
        })?;
        Ok(TensorMap(map))
    }
}

/// Recent maps, by all that they depend on.
#[derive(Default)]
pub(crate) struct Cache {
    maps: BTreeMap<TensorMapSpec, (TensorMap, u64)>,
    /// Counts uses, so that the one longest ago is known.
    clock: u64,
}

/// More than the operands of a model's layers; 256 bytes each.
const KEPT: usize = 256;

impl Cache {
    fn get(&mut self, spec: &TensorMapSpec) -> Option<TensorMap> {
        let (map, used) = self.maps.get_mut(spec)?;
        self.clock += 1;
        *used = self.clock;
        Some(*map)
    }

    fn put(&mut self, spec: TensorMapSpec, map: TensorMap) {
        if self.maps.len() >= KEPT {
            // Half of them in one step, so that this is not done for every new one.
            let mut uses: Vec<u64> = self.maps.values().map(|(_, used)| *used).collect();
            uses.sort_unstable();
            let median = uses[KEPT / 2];
            self.maps.retain(|_, (_, used)| *used > median);
        }
        self.clock += 1;
        self.maps.insert(spec, (map, self.clock));
    }
}

fn dtype(dtype: MapDType) -> RawDType {
    match dtype {
        MapDType::U8 => RawDType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        MapDType::U16 => RawDType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        MapDType::U32 => RawDType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        MapDType::I32 => RawDType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        MapDType::U64 => RawDType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        MapDType::I64 => RawDType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        MapDType::F16 => RawDType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        MapDType::F32 => RawDType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        MapDType::F64 => RawDType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        MapDType::BF16 => RawDType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        MapDType::F32Ftz => RawDType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
        MapDType::TF32 => RawDType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        MapDType::TF32Ftz => RawDType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
        MapDType::U4Packed => RawDType::CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B,
        MapDType::U4Spread => RawDType::CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B,
        MapDType::U6Spread => RawDType::CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B,
    }
}

fn swizzle(swizzle: Swizzle) -> RawSwizzle {
    match swizzle {
        Swizzle::None => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        Swizzle::B128Atom32 => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
        Swizzle::B128Atom32Flip8 => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B,
        Swizzle::B128Atom64 => RawSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B,
    }
}

fn interleave(interleave: Interleave) -> RawInterleave {
    match interleave {
        Interleave::None => RawInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
        Interleave::B16 => RawInterleave::CU_TENSOR_MAP_INTERLEAVE_16B,
        Interleave::B32 => RawInterleave::CU_TENSOR_MAP_INTERLEAVE_32B,
    }
}

fn promotion(promotion: L2Promotion) -> RawPromotion {
    match promotion {
        L2Promotion::None => RawPromotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        L2Promotion::B64 => RawPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        L2Promotion::B128 => RawPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        L2Promotion::B256 => RawPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

fn fill(fill: OobFill) -> RawFill {
    match fill {
        OobFill::Zero => RawFill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        OobFill::Nan => RawFill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_finds_what_it_has_and_forgets_what_was_not_used_for_longest() {
        let spec = |n: u64| {
            TensorMapSpec::tiled(MapDType::F32, n * 4096, &[64, 64], &[256], &[32, 32]).unwrap()
        };
        let map = |n: u64| TensorMap(CUtensorMap { opaque: [n; 16] });
        let mut cache = Cache::default();
        for n in 0..KEPT as u64 {
            cache.put(spec(n), map(n));
        }
        assert_eq!(cache.get(&spec(0)), Some(map(0)));
        assert_eq!(cache.get(&spec(0).swizzle(Swizzle::B128)), None);
        cache.put(spec(9999), map(9999));
        assert_eq!(cache.get(&spec(9999)), Some(map(9999)));
        assert_eq!((cache.get(&spec(0)), cache.get(&spec(1))), (Some(map(0)), None));
        assert_eq!(cache.get(&spec(0)).unwrap().bytes(), &[0; 128]);
    }
}
