//! Fragments against the tables of the instructions, written out as in their definition.

use tessera_layout::Layout;

/// Row and column of an accumulator's element in the instruction's m16n8 tile.
fn acc_place(reg: u32, lane: u32) -> [u32; 2] {
    let (group, in_group) = (lane / 4, lane % 4);
    [group + if reg >= 2 { 8 } else { 0 }, in_group * 2 + reg % 2]
}

/// Row and k of an element of A: machine register `reg / packed`, of which there are four.
fn a_place(reg: u32, lane: u32, packed: u32) -> [u32; 2] {
    let (group, in_group) = (lane / 4, lane % 4);
    let (word, part) = (reg / packed, reg % packed);
    let row = group + if word % 2 == 1 { 8 } else { 0 };
    [row, in_group * packed + part + if word >= 2 { 4 * packed } else { 0 }]
}

/// k and column of an element of B, two machine registers.
fn b_place(reg: u32, lane: u32, packed: u32) -> [u32; 2] {
    let (group, in_group) = (lane / 4, lane % 4);
    let (word, part) = (reg / packed, reg % packed);
    [in_group * packed + part + word * 4 * packed, group]
}

#[test]
fn accumulators_are_those_of_m16n8() {
    let layout = Layout::mma_acc(&[64, 24], [2, 1]);
    assert_eq!((layout.box_extents(), layout.repeat()), (&[32, 8][..], &[2, 3][..]));
    for warp in 0..2 {
        for lane in 0..32 {
            for reg in 0..layout.regs() {
                let [row, col] = acc_place(reg % 4, lane);
                let (down, right) = (reg / 4 / 3, reg / 4 % 3);
                let expected = [row + 16 * warp + 32 * down, col + 8 * right];
                assert_eq!(layout.coords(reg, lane, warp, 0), expected);
            }
        }
    }
}

#[test]
fn warps_go_along_rows_then_columns_and_beyond_the_tile_hold_copies() {
    let text = |layout: Layout| layout.to_string();
    let head = "[reg 0,1 8,0; lane 0,2 0,4 1,0 2,0 4,0; warp";
    let acc = Layout::mma_acc;
    assert_eq!(text(acc(&[64, 64], [2, 2])), format!("{head} 16,0 0,8; repeat 2,4]"));
    assert_eq!(text(acc(&[16, 64], [4, 2])), format!("{head} 0,0 0,0 0,8; repeat 1,4]"));
    assert_eq!(text(acc(&[48, 8], [4, 1])), format!("{head} 16,0 32,0]"));
}

#[test]
fn each_warp_owns_one_block_where_that_is_a_power_of_two() {
    let layout = Layout::mma_acc_blocks(&[128, 64], [2, 2]);
    for warp in 0..4 {
        for lane in 0..32 {
            for reg in 0..layout.regs() {
                let at = layout.coords(reg, lane, warp, 0);
                assert_eq!([at[0] / 64, at[1] / 32], [warp % 2, warp / 2]);
                let [row, col] = acc_place(reg % 4, lane);
                assert_eq!([at[0] % 16, at[1] % 8], [row, col]);
            }
        }
    }
    // 176 columns are 22 instructions: those repeat.
    let layout = Layout::mma_acc_blocks(&[128, 176], [4, 1]);
    assert_eq!(layout.box_extents(), [128, 8]);
    assert_eq!(layout.repeat(), [1, 22]);
}

#[test]
fn operands_are_those_of_the_instruction() {
    for acc in [Layout::mma_acc(&[64, 48], [2, 2]), Layout::mma_acc_blocks(&[64, 64], [2, 2])] {
        for (bits, packed) in [(8, 4), (16, 2), (32, 1)] {
            let k = 256 / bits * 3;
            let a = Layout::mma_a(&acc, k, bits);
            let b = Layout::mma_b(&acc, k, bits);
            assert_eq!((a.shape(), b.shape()), (&[64, k][..], &[k, acc.shape()[1]][..]));
            for warp in 0..4 {
                for lane in 0..32 {
                    for reg in 0..a.regs() {
                        let at = a.coords(reg, lane, warp, 0);
                        let expected = a_place(reg % (4 * packed), lane, packed);
                        assert_eq!([at[0] % 16, at[1] % (8 * packed)], expected);
                    }
                    for reg in 0..b.regs() {
                        let at = b.coords(reg, lane, warp, 0);
                        let expected = b_place(reg % (2 * packed), lane, packed);
                        assert_eq!([at[0] % (8 * packed), at[1] % 8], expected);
                    }
                    assert_eq!(blocks(&acc, 0, 16, warp), blocks(&a, 0, 16, warp));
                    assert_eq!(blocks(&acc, 1, 8, warp), blocks(&b, 1, 8, warp));
                }
            }
        }
    }
}

/// Which instructions' worth of a dim a warp has.
fn blocks(layout: &Layout, dim: usize, extent: u32, warp: u32) -> Vec<u32> {
    let mut all: Vec<u32> =
        (0..layout.regs()).map(|reg| layout.coords(reg, 0, warp, 0)[dim] / extent).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn f64_fragments_are_those_of_m8n8k4() {
    let acc = Layout::mma_acc_f64(&[16, 24], [2, 1]);
    let (a, b) = (Layout::mma_a_f64(&acc, 12), Layout::mma_b_f64(&acc, 12));
    assert_eq!((acc.regs(), a.regs(), b.regs()), (2 * 3, 3, 9));
    for warp in 0..2 {
        for lane in 0..32 {
            let (group, in_group) = (lane / 4, lane % 4);
            for reg in 0..6 {
                let expected = [group + 8 * warp, in_group * 2 + reg % 2 + 8 * (reg / 2)];
                assert_eq!(acc.coords(reg, lane, warp, 0), expected);
            }
            for step in 0..3 {
                let expected = [group + 8 * warp, in_group + 4 * step];
                assert_eq!(a.coords(step, lane, warp, 0), expected);
                for col in 0..3 {
                    let expected = [in_group + 4 * step, group + 8 * col];
                    assert_eq!(b.coords(step * 3 + col, lane, warp, 0), expected);
                }
            }
        }
    }
}

#[test]
fn the_sums_of_one_product_are_the_operand_of_the_next() {
    // Two neighbouring accumulators of f32 are one fragment of A in 16 bits.
    let acc = Layout::mma_acc(&[64, 32], [4, 1]);
    let next = Layout::mma_a(&Layout::mma_acc(&[64, 8], [4, 1]), 32, 16);
    let map = Layout::reg_map(&acc, &next).unwrap();
    assert_eq!(map, (0..16).collect::<Vec<_>>());
}
