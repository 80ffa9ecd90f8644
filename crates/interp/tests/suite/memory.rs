use super::{args, lanes, refusal, run, through};
use tessera_interp::HostArray;
use tessera_numerics::{DType, Scalar};
use tessera_target::ArgValue;

/// Copies `x` to `y` in blocks of 3x4, one for each group.
const COPY: &str = "
func @copy(%x: view<[m, n], bf16, read>, %y: view<[m, n], bf16, write>) {kind = group} {
  %three = tile.const {value = 3} : i64
  %four = tile.const {value = 4} : i64
  %p = tile.program_id {axis = 0} : i64
  %q = tile.program_id {axis = 1} : i64
  %i = tile.mul %p, %three : i64
  %j = tile.mul %q, %four : i64
  %t = tile.load %x at(%i, %j) {extent = [3, 4]} : tile<3x4xbf16>
  tile.store %y, %t at(%i, %j) {extent = [3, 4]}
  tile.return
}";

#[test]
fn any_strides_are_followed() {
    let values: Vec<f64> = (0..35).map(f64::from).collect();
    // The strides and first element of a 5x7 view of 35 elements, and what it shows at (i, j).
    type Shown = fn(i64, i64) -> i64;
    let views: [([i64; 2], usize, Shown); 5] = [
        ([14, 2], 0, |i, j| i * 7 + j),
        ([-14, -2], 34, |i, j| 34 - i * 7 - j),
        ([2, 10], 0, |i, j| i + j * 5),
        ([0, 2], 0, |_, j| j),
        ([2, 0], 3, |i, _| i + 3),
    ];
    for (strides, first, shown) in views {
        let mut x = HostArray::new(&[35], DType::BF16, &values);
        let mut y = HostArray::zeros(&[5, 7], DType::BF16);
        let view = x.as_strided_arg(&[5, 7], &strides, first);
        run(COPY, &args(vec![view, y.as_arg()], [2, 2, 1])).unwrap();
        let wanted: Vec<f64> = (0..35).map(|at| shown(at / 7, at % 7) as f64).collect();
        assert_eq!(y.values(), wanted, "{strides:?}");
        // The same view written to.
        if strides[0] != 0 && strides[1] != 0 {
            let mut z = HostArray::zeros(&[35], DType::BF16);
            let view = z.as_strided_arg(&[5, 7], &strides, first);
            run(COPY, &args(vec![y.as_arg(), view], [2, 2, 1])).unwrap();
            assert_eq!(z.values(), values, "{strides:?}");
        }
    }
}

#[test]
fn empty_arrays_are_never_touched() {
    for dims in [[0, 7], [5, 0], [0, 0]] {
        let mut x = HostArray::zeros(&dims, DType::BF16);
        let mut y = HostArray::zeros(&dims, DType::BF16);
        run(COPY, &args(vec![x.as_arg(), y.as_arg()], [2, 2, 1])).unwrap();
    }
}

const AT: &str = "
func @at(%x: view<[n], i32, read>, %y: view<[4], i32, write>, %p: i64) {kind = group} {
  %z = tile.const {value = 0} : i64
  %o = tile.const {value = -7} : i32
  %t = tile.load %x at(%p) other(%o) {extent = [4]} : tile<4xi32>
  tile.store %y, %t at(%z) {extent = [4]}
  tile.return
}";

#[test]
fn positions_outside_read_other() {
    let mut x = HostArray::new(&[3], DType::I32, &[1.0, 2.0, 3.0]);
    let mut y = HostArray::zeros(&[4], DType::I32);
    for (p, wanted) in [
        (0, [1, 2, 3, -7]),
        (-2, [-7, -7, 1, 2]),
        (2, [3, -7, -7, -7]),
        (i64::MIN, [-7; 4]),
        (i64::MAX, [-7; 4]),
    ] {
        let p = ArgValue::Scalar(Scalar::I64(p));
        run(AT, &args(vec![x.as_arg(), y.as_arg(), p], [1; 3])).unwrap();
        assert_eq!(y.values(), wanted.map(f64::from));
    }
}

#[test]
fn lane_positions_outside_read_zero_and_are_not_written() {
    let text = "
func @f(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %by: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %j = tile.sub %i, %by : i64
  %v = tile.load %x at(%j) {extent = [0]} : f32
  %one = tile.const {value = 1.0} : f32
  %w = tile.add %v, %one : f32
  tile.store %y, %w at(%i) {extent = [0]}
  %k = tile.add %i, %by : i64
  tile.store %y, %w at(%k) {extent = [0]}
  tile.return
}";
    let mut x = HostArray::new(&[3], DType::F32, &[1.0, 2.0, 3.0]);
    let mut y = HostArray::zeros(&[3], DType::F32);
    let by = |v| ArgValue::Scalar(Scalar::I64(v));
    run(text, &lanes(vec![x.as_arg(), y.as_arg(), by(1 << 62)], 3, 4)).unwrap();
    assert_eq!(y.values(), [1.0, 1.0, 1.0]);
    run(text, &lanes(vec![x.as_arg(), y.as_arg(), by(1)], 3, 4)).unwrap();
    // The second store of lane i follows every lane's first one: lock step.
    assert_eq!(y.values(), [1.0, 1.0, 2.0]);
}

#[test]
fn gather_and_scatter_take_each_position() {
    let text = "
func @f(%x: view<[n], f32, read_write>, %i: view<[4], u8, read>, %y: view<[4], f32, write>) {kind = group} {
  %z = tile.const {value = 0} : i64
  %o = tile.const {value = -1.0} : f32
  %ix = tile.load %i at(%z) {extent = [4]} : tile<4xu8>
  %g = tile.gather %x at(%ix) other(%o) : tile<4xf32>
  tile.store %y, %g at(%z) {extent = [4]}
  %v = tile.iota {start = 10} : tile<4xi32>
  %f = tile.cast %v : tile<4xf32>
  %three = tile.const {value = 12} : tile<4xi32>
  %m = tile.ne %v, %three : tile<4xbool>
  tile.scatter %x, %f at(%ix) mask(%m)
  tile.return
}";
    let mut x = HostArray::new(&[3], DType::F32, &[1.0, 2.0, 3.0]);
    let mut i = HostArray::new(&[4], DType::U8, &[2.0, 200.0, 0.0, 2.0]);
    let mut y = HostArray::zeros(&[4], DType::F32);
    run(text, &args(vec![x.as_arg(), i.as_arg(), y.as_arg()], [1; 3])).unwrap();
    assert_eq!(y.values(), [3.0, -1.0, 1.0, 3.0]);
    assert_eq!(x.values(), [1.0, 2.0, 13.0]);
}

#[test]
fn gather_mixes_scalars_and_tiles() {
    let mut x = HostArray::new(&[2, 3], DType::I16, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let body = "
      %one = tile.const {value = 1} : i64
      %ix = tile.iota {start = 1} : tile<3xi32>
      %r = tile.gather %x at(%one, %ix) : tile<3xi16>";
    assert_eq!(through(&mut x, body, (&[3], DType::I16)).values(), [5.0, 6.0, 0.0]);
}

#[test]
fn stores_obey_scalar_and_tile_masks() {
    let text = "
func @f(%y: view<[n], i32, read_write>, %all: bool) {kind = group} {
  %z = tile.const {value = 0} : i64
  %v = tile.iota {start = 1} : tile<4xi32>
  %two = tile.const {value = 2} : tile<4xi32>
  %m = tile.ne %v, %two : tile<4xbool>
  tile.store %y, %v at(%z) mask(%m) {extent = [4]}
  tile.accumulate %y, %v at(%z) mask(%all) {op = sum, extent = [4]}
  tile.return
}";
    for (all, wanted) in [(false, [1.0, 9.0, 3.0]), (true, [2.0, 11.0, 6.0])] {
        let mut y = HostArray::new(&[3], DType::I32, &[9.0; 3]);
        let all = ArgValue::Scalar(Scalar::Bool(all));
        run(text, &args(vec![y.as_arg(), all], [1; 3])).unwrap();
        assert_eq!(y.values(), wanted);
    }
}

#[test]
fn accumulate_rounds_to_storage_each_time() {
    let text = |elem: &str, op: &str| {
        format!(
            "func @f(%y: view<[2], {elem}, read_write>, %v: f32) {{kind = group}} {{
  %z = tile.const {{value = 0}} : i64
  %t = tile.broadcast %v : tile<2xf32>
  tile.accumulate %y, %t at(%z) {{op = {op}, extent = [2]}}
  tile.return
}}"
        )
    };
    let fold = |elem: &str, op: &str, dtype: DType, start: [f64; 2], v: f32, times: i64| {
        let mut y = HostArray::new(&[2], dtype, &start);
        let v = ArgValue::Scalar(Scalar::F32(v));
        run(&text(elem, op), &args(vec![y.as_arg(), v], [times, 1, 1])).unwrap();
        y.text()
    };
    assert_eq!(fold("bf16", "sum", DType::BF16, [0.0, 250.0], 1.0, 10), "[10.0, 256.0]");
    assert_eq!(
        fold("bf16 @round(\"up\")", "sum", DType::BF16, [0.0, 256.0], 1.0, 1),
        "[1.0, 258.0]"
    );
    assert_eq!(fold("bf16", "max", DType::BF16, [-0.0, f64::NAN], 0.0, 1), "[0.0, nan]");
    assert_eq!(fold("fp8_e4m3", "prod", DType::Fp8E4M3, [3.0, 400.0], 2.0, 1), "[6.0, 448.0]");
    assert_eq!(fold("i8", "sum", DType::I8, [100.0, -3.0], 27.5, 1), "[127, 24]");
}

#[test]
fn buffers_hold_tiles_and_copies() {
    let mut x = HostArray::new(&[3], DType::F16, &[1.0, 2.0, 3.0]);
    let body = "
      %b = tile.buf_alloc {swizzle = xor, alignment = 128} : buf<4xf16>
      %one = tile.const {value = 1} : i64
      tile.copy_async %b, %x at(%one) {extent = [4]}
      tile.barrier
      %r = tile.load %b at(%one) {extent = [4]} : tile<4xf16>";
    assert_eq!(through(&mut x, body, (&[4], DType::F16)).values(), [3.0, 0.0, 0.0, 0.0]);
}

#[test]
fn reading_a_buffer_before_writing_it_is_an_error_at_the_read() {
    let text = "func @f(%y: view<[4], f32, write>) {kind = group} {
  %z = tile.const {value = 0} : i64
  %b = tile.buf_alloc : buf<2x4xf32>
  %v = tile.const {value = 1.0} : tile<4xf32>
  tile.store %b, %v at(%z, %z) {extent = [0, 4]}
  %one = tile.const {value = 1} : i64
  %t = tile.load %b at(%one, %z) {extent = [0, 4]} : tile<4xf32>
  tile.store %y, %t at(%z) {extent = [4]}
  tile.return
}";
    let mut y = HostArray::zeros(&[4], DType::F32);
    let result = run(text, &args(vec![y.as_arg()], [1; 3]));
    assert_eq!(result.as_ref().unwrap_err().iter().next().unwrap().loc.line(), 7);
    assert_eq!(
        refusal(result),
        "E_UNINIT element [1, 0] of the buffer is read but was never written"
    );
}

#[test]
fn rank_0_memory_is_one_element() {
    let mut x = HostArray::new(&[], DType::F64, &[2.5]);
    assert_eq!(through(&mut x, "%r = tile.neg %t : f64", (&[], DType::F64)).values(), [-2.5]);
}
