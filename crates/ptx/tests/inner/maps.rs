//! Tensor maps of a launch.

use tessera_numerics::DType;
use tessera_ptx::inner::check_maps as check;
use tessera_ptx::*;
use tessera_ptx_emulator::TensorMap;
use tessera_target::frame::Frame;
use tessera_target::{ArgValue, BufferArg, LaunchArgs};
use tessera_tile::TileFunc;

const TEXT: &str = "\
func @copy(%n: i64, %a: view<[p, m, k], bf16, read>) {kind = group, grid = [1]} {
  tile.return
}
";

fn func() -> TileFunc {
    tessera_tile::parse(TEXT).unwrap_or_else(|e| panic!("{e}"))
}

fn words(frame: &Frame, func: &TileFunc, dims: &[i64], strides: &[i64]) -> Vec<u64> {
    let array = BufferArg {
        data: std::ptr::null_mut::<u8>().wrapping_add(0x1000),
        dims: dims.to_vec(),
        strides: strides.to_vec(),
        dtype: DType::BF16,
        writable: false,
    };
    let params = vec![ArgValue::Scalar(tessera_numerics::Scalar::I64(7)), ArgValue::Buffer(array)];
    let named = ["p", "m", "k"].map(String::from).into_iter().zip(dims.iter().copied());
    let args = LaunchArgs { params, dims: named.collect(), grid: [1; 3], domain: [0; 3], lanes: 1 };
    let mut words = Vec::new();
    frame.fill(func, &args, &mut words, |_, _, _| {}).unwrap_or_else(|e| panic!("{e}"));
    words
}

fn recipe() -> MapRecipe {
    let (axes, extent) = (vec![2, 1, 0], vec![64, 128, 1]);
    MapRecipe { param: 1, axes, extent, span: 128, dtype: DType::BF16 }
}

#[test]
fn maps_are_made_of_the_words_of_a_launch() {
    let func = func();
    let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
    let map = |recipe: &MapRecipe, dims: &[i64], strides: &[i64]| {
        tessera_ptx_emulator::tensor_map(recipe, &frame, &words(&frame, &func, dims, strides))
    };
    let wanted = TensorMap {
        base: 0x1000,
        dtype: DType::BF16,
        dims: vec![300, 200, 3],
        strides: vec![608, 131_072],
        tile: vec![64, 128, 1],
        swizzle: 128,
    };
    assert_eq!(map(&recipe(), &[3, 200, 300], &[131_072, 608, 2]), wanted);
    // Column-major.
    let transposed = MapRecipe { axes: vec![1, 2, 0], ..recipe() };
    let wanted = TensorMap { dims: vec![200, 300, 3], strides: vec![400, 131_072], ..wanted };
    assert_eq!(map(&transposed, &[3, 200, 300], &[131_072, 2, 400]), wanted);
    // Strides that no element uses may be anything.
    let wanted = TensorMap { dims: vec![200, 1, 1], strides: vec![400, 400], ..wanted };
    assert_eq!(map(&transposed, &[1, 200, 1], &[0, 2, -6]), wanted);
    let wanted = TensorMap { dims: vec![3, 1, 5], strides: vec![16, 32], ..wanted };
    assert_eq!(map(&transposed, &[5, 3, 1], &[32, 2, 2]), wanted);
    assert_eq!(recipe().word(&frame), frame.params[1].word);
}

#[test]
fn maps_stand_behind_the_words_where_the_kernel_looks_for_them() {
    for count in 1..20 {
        let mut words = vec![7; count];
        let maps = [[0xA1_u8; 128], [0xB2; 128]];
        maps.iter().for_each(|map| push_map(&mut words, map));
        // The parameter layout of a kernel.
        let mut at = count as u32 * 8;
        for (i, map) in maps.iter().enumerate() {
            at = at.next_multiple_of(MAP_ALIGN);
            assert_eq!(map_word(count, i) * 8, at as usize);
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(&bytes[at as usize..at as usize + 128], map);
            at += MAP_BYTES;
        }
        assert_eq!(words.len() * 8, at as usize);
    }
}

#[test]
fn a_recipe_is_reported_in_the_order_of_the_array() {
    let func = func();
    let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(recipe().text(&frame), "a: boxes of 1x128x64 bf16, swizzled within 128 bytes");
    let plain = MapRecipe { span: 0, ..recipe() };
    assert_eq!(plain.text(&frame), "a: boxes of 1x128x64 bf16");
}

#[test]
fn what_cannot_be_a_map_is_found_before_it_is_launched() {
    let func = func();
    let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
    let mut kernel = Kernel::new("copy", 128);
    kernel.params.push(Param { name: "args".into(), bytes: 128, align: 8 });
    let reported = |kernel: &Kernel, map: MapRecipe| {
        check(kernel, &frame, &[map]).err().map_or(String::new(), |e| e.message)
    };
    assert!(reported(&kernel, recipe()).contains("1 maps among 1 parameters"));
    kernel.params.push(Param { name: "map0".into(), bytes: 128, align: 64 });
    assert_eq!(reported(&kernel, recipe()), "");
    for (wrong, words) in [
        (MapRecipe { param: 0, ..recipe() }, "parameter 0 is no array"),
        (MapRecipe { param: 9, ..recipe() }, "parameter 9 is no array"),
        (MapRecipe { axes: vec![2, 2, 0], ..recipe() }, "axis 2 is none of 3 or stands twice"),
        (MapRecipe { axes: vec![2, 1, 3], ..recipe() }, "axis 3 is none"),
        (MapRecipe { axes: vec![2, 1], ..recipe() }, "2 axes and a box of [64, 128, 1]"),
        (MapRecipe { extent: vec![64, 257, 1], ..recipe() }, "beyond 256"),
        (MapRecipe { extent: vec![4, 128, 1], ..recipe() }, "rows of 8 bytes"),
        (MapRecipe { span: 16, ..recipe() }, "a swizzle of 16 bytes"),
        (MapRecipe { span: 64, ..recipe() }, "rows of 128 bytes in a swizzle of 64"),
        (
            MapRecipe { dtype: DType::F64, extent: vec![8, 1, 1], ..recipe() },
            "for an array of bf16",
        ),
    ] {
        assert!(reported(&kernel, wrong.clone()).contains(words), "{}", reported(&kernel, wrong));
    }
    kernel.params[1].align = 8;
    assert!(reported(&kernel, recipe()).contains("at multiples of 8"));
}
