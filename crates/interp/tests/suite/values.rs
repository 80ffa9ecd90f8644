use super::{args, run, through};
use tessera_interp::HostArray;
use tessera_numerics::DType::{self, *};
use tessera_numerics::Scalar;
use tessera_target::ArgValue;

fn cast(values: &[f64], from: DType, to: DType, attrs: &str) -> String {
    let n = values.len() as i64;
    let mut x = HostArray::new(&[n], from, values);
    let body = format!("%r = tile.cast %t {attrs} : tile<{n}x{to}>");
    through(&mut x, &body, (&[n], to)).text()
}

#[test]
fn casts_follow_the_language() {
    let edges = [1.9, -1.9, 3e9, -3e9, f64::NAN, f64::INFINITY];
    assert_eq!(cast(&edges, F32, I32, ""), "[1, -1, 2147483647, -2147483648, 0, 2147483647]");
    assert_eq!(cast(&[300.0, -1.0], I32, I8, ""), "[44, -1]");
    assert_eq!(cast(&[300.0, -1.0], I32, I8, "{saturate = true}"), "[127, -1]");
    assert_eq!(cast(&[300.0, -1.0], I32, U8, ""), "[44, 255]");
    assert_eq!(cast(&[1000.0, -0.0, f64::INFINITY], F32, Fp8E4M3, ""), "[448.0, -0.0, 448.0]");
    assert_eq!(cast(&[1000.0], F32, Fp8E4M3, "{saturate = false}"), "[nan]");
    assert_eq!(cast(&[1.00390625, 1.01171875], F32, BF16, ""), "[1.0, 1.015625]");
    assert_eq!(cast(&[1.001, -1.001], F32, BF16, "{round = up}"), "[1.0078125, -1.0]");
    assert_eq!(cast(&[1.001, -1.001], F32, BF16, "{round = down}"), "[1.0, -1.0078125]");
    assert_eq!(cast(&[0.0, -0.0, 0.5], F32, Bool, ""), "[false, false, true]");
    assert_eq!(cast(&[16777217.0], I32, F32, ""), "[16777216.0]");
    // One rounding from f64: through f32 this would be a tie and go to 1.0.
    assert_eq!(cast(&[1.00390625 + 1e-12], F64, BF16, ""), "[1.0078125]");
}

#[test]
fn bitcast_keeps_bits_and_makes_nan_canonical() {
    let mut x = HostArray::new(&[3], F32, &[1.0, -0.0, 0.0]);
    x.bytes[8..12].copy_from_slice(&0xFFC1_2345u32.to_le_bytes());
    let r = through(&mut x, "%r = tile.bitcast %t : tile<3xi32>", (&[3], I32));
    assert_eq!(r.text(), format!("[{}, {}, {}]", 0x3F80_0000, i32::MIN, 0x7FC0_0000));
    let mut x = HostArray::new(&[2], I8, &[0x38 as f64, -8.0]);
    let r = through(&mut x, "%r = tile.bitcast %t : tile<2xfp8_e4m3>", (&[2], Fp8E4M3));
    assert_eq!(r.text(), "[1.0, -256.0]");
}

#[test]
fn stores_write_one_nan() {
    for (dtype, code) in [
        (F32, 0x7FC0_0000u32.to_le_bytes().to_vec()),
        (F64, 0x7FF8_0000_0000_0000u64.to_le_bytes().to_vec()),
    ] {
        let mut x = HostArray::zeros(&[1], dtype);
        x.bytes.fill(0xFF);
        let body = format!("%r = tile.neg %t : tile<1x{dtype}>");
        assert_eq!(through(&mut x, &body, (&[1], dtype)).bytes, code);
    }
    let mut x = HostArray::zeros(&[1], BF16);
    x.bytes.fill(0xFF);
    let body = "%c = tile.cast %t : tile<1xf32>\n%n = tile.neg %c : tile<1xf32>\n%r = tile.cast %n : tile<1xbf16>";
    assert_eq!(through(&mut x, body, (&[1], BF16)).bytes, 0x7FC0u16.to_le_bytes());
}

#[test]
fn integers_wrap_floor_and_shift_by_any_count() {
    let binary = |op: &str, dtype: DType, a: f64, b: i64| {
        let mut x = HostArray::new(&[1], dtype, &[a]);
        let body = format!(
            "%b = tile.const {{value = {b}}} : tile<1x{dtype}>\n%r = tile.{op} %t, %b : tile<1x{dtype}>"
        );
        through(&mut x, &body, (&[1], dtype)).text()
    };
    assert_eq!(binary("add", I32, 2147483647.0, 1), "[-2147483648]");
    assert_eq!(binary("floordiv", I32, -7.0, 2), "[-4]");
    assert_eq!(binary("mod", I64, -7.0, 3), "[2]");
    assert_eq!(binary("floordiv", I64, 7.0, 0), "[0]");
    assert_eq!(binary("shl", U32, 1.0, 40), "[0]");
    assert_eq!(binary("shr", I32, -5.0, 99), "[-1]");
    assert_eq!(binary("sub", U32, 0.0, 1), "[4294967295]");
    // A constant above i64::MAX is written as the i64 with its bits.
    assert_eq!(binary("or", U64, 0.0, -1), "[18446744073709551615]");
}

#[test]
fn reductions_take_the_canonical_order() {
    let values: Vec<f64> = (0..300).map(|i| (i * 37 % 101) as f64 / 7.0).collect();
    let mut x = HostArray::new(&[3, 100], F32, &values);
    let f32s: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    let rows =
        through(&mut x, "%r = tile.reduce %t {op = sum, axis = 1} : tile<3xf32>", (&[3], F32));
    let wanted =
        f32s.chunks(100).map(|r| tessera_numerics::canonical_sum_f32(r.iter().copied()) as f64);
    assert_eq!(rows.values(), wanted.collect::<Vec<_>>());
    let columns =
        through(&mut x, "%r = tile.reduce %t {op = max, axis = 0} : tile<100xf32>", (&[100], F32));
    let wanted =
        (0..100).map(|j| (0..3).map(|i| f32s[i * 100 + j] as f64).fold(f64::MIN, f64::max));
    assert_eq!(columns.values(), wanted.collect::<Vec<_>>());
    let body = "
      %a = tile.reduce %t {op = min, axis = 0} : tile<100xf32>
      %r = tile.reduce %a {op = sum, axis = 0} : f32";
    assert_eq!(through(&mut x, body, (&[], F32)).values().len(), 1);
}

#[test]
fn shapes_are_rearranged() {
    let mut x = HostArray::new(&[2, 3], I32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let body = "
      %a = tile.transpose %t {perm = [1, 0]} : tile<3x2xi32>
      %b = tile.reshape %a : tile<6xi32>
      %c = tile.expand %b {axis = 1} : tile<6x1xi32>
      %r = tile.broadcast %c : tile<6x2xi32>";
    let wanted = [1., 1., 4., 4., 2., 2., 5., 5., 3., 3., 6., 6.];
    assert_eq!(through(&mut x, body, (&[6, 2], I32)).values(), wanted);
}

#[test]
fn a_value_used_twice_is_not_written_over() {
    let mut x = HostArray::new(&[2], F32, &[3.0, 4.0]);
    let body = "
      %a = tile.add %t, %t : tile<2xf32>
      %b = tile.mul %t, %a : tile<2xf32>
      %zero64 = tile.const {value = 0} : i64
      %three = tile.const {value = 3} : i64
      %one = tile.const {value = 1} : i64
      %r = tile.for %zero64, %three, %one init(%b) : tile<2xf32> do (%i: i64, %acc: tile<2xf32>) {
        %n = tile.add %acc, %b : tile<2xf32>
        tile.yield %n
      }";
    assert_eq!(through(&mut x, body, (&[2], F32)).values(), [72.0, 128.0]);
}

#[test]
fn select_takes_a_scalar_or_a_tile() {
    let mut x = HostArray::new(&[3], I32, &[1.0, 2.0, 3.0]);
    let body = "
      %two = tile.const {value = 2} : tile<3xi32>
      %c = tile.ge %t, %two : tile<3xbool>
      %s = tile.select %c, %t, %two : tile<3xi32>
      %no = tile.const {value = false} : bool
      %r = tile.select %no, %t, %s : tile<3xi32>";
    assert_eq!(through(&mut x, body, (&[3], I32)).values(), [2.0, 2.0, 3.0]);
}

/// The example of every op in the table can be run in a function.
#[test]
fn examples_of_the_op_table_run() {
    use tessera_ir::Opcode;
    use tessera_tile::TileOp;
    for op in TileOp::all() {
        let example = op.info().example;
        if matches!(op, TileOp::Yield | TileOp::Return | TileOp::Origin) {
            continue;
        }
        let lane =
            matches!(op, TileOp::LinearId | TileOp::LocalId) || tessera_tile::is_collective(op);
        let cond = if op == TileOp::While { "" } else { "%c = tile.lt %lo, %hi : bool" };
        let tiles = if lane {
            ""
        } else {
            "%t = tile.const {value = 1.0} : tile<8x2xf32>\n%ix = tile.iota : tile<8xi32>"
        };
        let text = format!(
            "func @f(%v: view<[n], f32, read_write>, %x: f32, %y: f32) {{kind = {}}} {{
               %lo = tile.const {{value = 0}} : i64
               %hi = tile.const {{value = 3}} : i64
               %step = tile.const {{value = 1}} : i64
               {cond}
               {tiles}
               {example}
               tile.return
             }}",
            if lane { "lane" } else { "group" }
        );
        let mut v = HostArray::new(&[64], F32, &[1.0; 64]);
        let scalar = |x| ArgValue::Scalar(Scalar::F32(x));
        let mut launch = args(vec![v.as_arg(), scalar(1.0), scalar(3.0)], [1; 3]);
        (launch.domain, launch.lanes) = ([4, 1, 1], 4);
        run(&text, &launch).unwrap_or_else(|e| panic!("{example}\n{e}"));
    }
}
