//! MMA and reduction instructions of a target by the dtypes of the tile language, as passes ask for them.

use crate::caps::Feature;
use crate::inst::{MmaRow, Ty, WgmmaRow};
use crate::module::Target;
use crate::select::mma_type;
use tessera_numerics::{DType, ReduceOp};
use tessera_target::MatrixRow;
use tessera_tile::ops::mma::LEGAL;

/// Reductions that TMA does with the same bits as threads: sums, as far as observed on a GPU.
pub fn fold_rows(target: Target) -> Vec<(ReduceOp, DType)> {
    let sums = [DType::F32, DType::I32, DType::U32].map(|dtype| (ReduceOp::Sum, dtype));
    if Feature::Tma.on().has(target) { sums.to_vec() } else { Vec::new() }
}

/// The dtypes of WGMMA.
pub fn async_mma_rows(target: Target) -> Vec<MatrixRow> {
    let row = |&(a, b, acc): &(DType, DType, DType)| {
        let [ta, tb, tc] = [a, b, acc].map(mma_type);
        let k = 256 / ta?.bits();
        let row = WgmmaRow { n: 64, k, a: ta?, b: tb?, c: tc?, sat: false };
        let needs = crate::legal::wgmma(&row).ok()?;
        needs.iter().all(|&f| f.on().has(target)).then_some(MatrixRow { a, b, acc, k })
    };
    LEGAL.iter().filter_map(row).collect()
}

/// Pairs of dtypes that tensor cores multiply by `mma.sync`, with the depth of their fragments.
pub fn matrix_rows(rows: &[MmaRow]) -> Vec<MatrixRow> {
    let mut out = Vec::new();
    for &a in DType::ALL {
        for &b in DType::ALL {
            for acc in [DType::F32, DType::I32, DType::F64] {
                let (Some(ta), Some(tb), Some(tc)) = (mma_type(a), mma_type(b), mma_type(acc))
                else {
                    continue;
                };
                if ta == Ty::F32 {
                    continue;
                }
                let k = if ta == Ty::F64 { 4 } else { 256 / ta.bits() };
                let has = rows.iter().any(|r| {
                    (r.a, r.b, r.c) == (ta, tb, tc) && (r.k == k || r.k == k / 2 && r.m == 16)
                });
                if has {
                    out.push(MatrixRow { a, b, acc, k });
                }
            }
        }
    }
    out
}

/// Dtypes that MMA instructions of a warp or warpgroup take without conversion.
pub fn mma_dtypes(rows: &[MmaRow]) -> Vec<DType> {
    const ROWS: &[(Ty, DType)] = &[
        (Ty::S4, DType::I4),
        (Ty::S8, DType::I8),
        (Ty::U8, DType::U8),
        (Ty::F64, DType::F64),
        (Ty::Tf32, DType::Tf32),
        (Ty::F16, DType::F16),
        (Ty::BF16, DType::BF16),
        (Ty::E4M3, DType::Fp8E4M3),
        (Ty::E5M2, DType::Fp8E5M2),
        (Ty::E3M2, DType::Fp6E3M2),
        (Ty::E2M3, DType::Fp6E2M3),
        (Ty::E2M1, DType::Fp4E2M1),
    ];
    let has = |ty: Ty| rows.iter().any(|row| row.a == ty);
    ROWS.iter().filter(|(ty, _)| has(*ty)).map(|(_, dtype)| *dtype).collect()
}
