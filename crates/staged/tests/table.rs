//! The op table as a whole, and the kernels that the text tests hold.

use std::collections::BTreeSet;
use tessera_ir::{Opcode, verify};
use tessera_staged::{StagedOp, in_family, parse};
use tessera_tile::TileOp;

const KERNELS: [(&str, &str); 4] = [
    ("elementwise", include_str!("../../../filetests/staged/elementwise.tir")),
    ("pipeline", include_str!("../../../filetests/staged/pipeline.tir")),
    ("parts", include_str!("../../../filetests/staged/parts.tir")),
    ("roles", include_str!("../../../filetests/staged/roles.tir")),
];

#[test]
fn every_op_has_one_name_and_reads_back_by_it() {
    let mut names = BTreeSet::new();
    for op in StagedOp::all() {
        assert!(names.insert(op.mnemonic()), "{} is there twice", op.mnemonic());
        assert_eq!(StagedOp::from_mnemonic(op.mnemonic()), Some(op));
    }
    for op in TileOp::all().into_iter().filter(|&op| !in_family(op)) {
        assert_eq!(StagedOp::from_mnemonic(op.mnemonic()), None, "{}", op.mnemonic());
    }
}

#[test]
fn family_rows_have_the_operands_of_tile_ir() {
    for op in TileOp::all().into_iter().filter(|&op| in_family(op)) {
        let (tile, staged) = (op.info(), StagedOp::Tile(op).info());
        assert_eq!(tile.number, staged.number);
        assert_eq!(tile.operands.len(), staged.operands.len());
        assert_eq!(tile.groups.len(), staged.groups.len());
        assert_eq!((tile.results, tile.effects), (staged.results, staged.effects));
    }
}

#[test]
fn numbers_of_own_ops_are_distinct() {
    let own = StagedOp::all().into_iter().filter(|op| op.as_tile().is_none());
    let numbers: Vec<u16> = own.map(|op| op.info().number).collect();
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
}

/// The functions of a file, one at a time.
fn functions(text: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        text.split("\nfunc ").skip(1).map(|f| format!("func {f}")).collect();
    parts.iter_mut().for_each(|p| p.truncate(p.rfind("\n}").map_or(p.len(), |at| at + 3)));
    parts
}

#[test]
fn kernels_are_valid() {
    for (name, text) in KERNELS {
        for text in functions(text) {
            let func = parse(&text).unwrap_or_else(|e| panic!("{name}: {}", e.render()));
            verify(&func).unwrap_or_else(|e| panic!("{name}: {}", e.render()));
            assert_eq!(func.to_string().trim(), text.trim());
        }
    }
}

/// What examples may use, and the types they leave open.
const AROUND: &str = "func @example(%v: view<[m, n], f32, read_write>, %i: i64, %x: f32) {kind = group, threads = 128} {
  %t = staged.broadcast %x : LAID
  %m = staged.smem_alloc : SMEM
  %r = staged.pipeline_create : PIPELINE
  %s = staged.wait %r, %i : STAGE
  %p = staged.mma_open %t : PENDING
  %order = staged.order_barrier_create : order_barrier
";

#[test]
fn examples_read() {
    for op in StagedOp::all().into_iter().filter(|op| op.as_tile().is_none()) {
        let example = op.info().example;
        let text = format!("{AROUND}{example}\n  staged.return\n}}\n")
            .replace("PENDING", "pending<LAID>")
            .replace("LAID", "tile<8x8xf32, #[reg 4,0; lane 0,1 0,2 0,4 1,0 2,0]>")
            .replace("SMEM", "smem<8x8xf32, #[order 1,0]>")
            .replace("PIPELINE", "pipeline<2; a: 8x8xf32 #[order 1,0]>")
            .replace("STAGE", "stage<a: 8x8xf32 #[order 1,0]>");
        let func = parse(&text).unwrap_or_else(|e| panic!("{op:?}: {}\n{text}", e.render()));
        assert!(func.walk().iter().any(|&o| func.ops[o].code == op), "{op:?}");
    }
}
