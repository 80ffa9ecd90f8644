//! Blocks of a launch.

use std::collections::BTreeMap;
use tessera_diag::Diagnostics;
use tessera_ir::Attrs;
use tessera_ptx::*;
use tessera_target::LaunchArgs;

fn code(per_multiprocessor: u32, cluster: u32) -> Code {
    let mut kernel = Kernel::new("k", 384);
    kernel.cluster = cluster;
    let (version, target) = (Version { major: 8, minor: 0 }, Target { sm: 90, exact: true });
    Code {
        module: Module { version, target, files: vec![], kernels: vec![kernel] },
        shape: Shape::Persistent { per_multiprocessor, phased: false, team: [1; 3] },
        sites: vec![],
        prints: vec![],
        stamps: vec![],
        context: 0,
        counts: false,
        maps: vec![],
        staged: None,
        chosen: Attrs::new(),
        warnings: Diagnostics::new(),
        notes: vec![],
    }
}

fn args(grid: [i64; 3]) -> LaunchArgs {
    LaunchArgs { params: vec![], dims: BTreeMap::new(), grid, domain: [0; 3], lanes: 1 }
}

#[test]
fn blocks_that_work_on_have_equally_many_iterations() {
    // 512 tiles over 132 blocks take four iterations, as they do over 128 blocks.
    for (grid, per, cluster, blocks) in [
        ([32, 16, 1], 1, 1, 128),
        ([132, 1, 1], 1, 1, 132),
        ([133, 1, 1], 1, 1, 67),
        ([7, 1, 1], 1, 1, 7),
        ([7, 3, 2], 2, 1, 42),
        ([1000, 1, 1], 2, 1, 250),
        ([0, 16, 1], 1, 1, 0),
        // Clusters of two take a tile together.
        ([16, 8, 1], 1, 2, 128),
        ([30, 1, 1], 1, 2, 60),
    ] {
        assert_eq!(code(per, cluster).blocks(&args(grid), 132), blocks, "{grid:?} {cluster}");
    }
    // A device that holds fewer of them than assumed, or fewer than one.
    assert_eq!(code(2, 1).blocks_where(&args([512, 1, 1]), 132, 132), 128);
    assert_eq!(code(1, 2).blocks_where(&args([90, 1, 1]), 132, 30), 60);
    assert_eq!(code(1, 1).blocks_where(&args([9, 1, 1]), 132, 0), 1);
}

#[test]
fn equal_code_with_other_tensor_maps_has_another_hash() {
    let (mut one, mut other) = (code(1, 1), code(1, 1));
    assert_eq!(one.hash(), one.module.hash());
    let map = MapRecipe {
        param: 0,
        axes: vec![1, 0],
        extent: vec![64, 128],
        span: 128,
        dtype: tessera_numerics::DType::BF16,
    };
    other.maps = vec![MapRecipe { span: 64, extent: vec![32, 128], ..map.clone() }];
    one.maps = vec![map];
    assert_ne!(one.hash(), other.hash());
    assert_eq!(one.hash(), one.clone().hash());
}

#[test]
fn phases_halve_what_is_left() {
    let mut phased = code(1, 1);
    phased.shape = Shape::Persistent { per_multiprocessor: 1, phased: true, team: [1; 3] };
    for (groups, blocks, phases) in
        [(7, 7, 1), (264, 132, 1), (396, 132, 1), (528, 132, 2), (4096, 132, 5), (1 << 20, 132, 5)]
    {
        let args = args([groups, 1, 1]);
        assert_eq!(phased.blocks(&args, 132), blocks, "{groups}");
        assert_eq!(phased.phases(&args, blocks), phases, "{groups}");
        assert_eq!(code(1, 1).phases(&args, blocks), 1);
    }
}
