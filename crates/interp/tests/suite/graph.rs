//! Graph IR on small arrays with results worked out by hand.

use tessera_interp::{HostArray, NoKernels, run_graph};
use tessera_numerics::{DType, Scalar, canonical_sum_f32, philox4};

pub fn array(dims: &[i64], dtype: DType, values: &[f64]) -> HostArray {
    HostArray::new(dims, dtype, values)
}

/// Evaluates `@f`; every result as `[dims] values`.
pub fn eval(text: &str, args: &[HostArray]) -> Vec<String> {
    let module = tessera_ir::parse_module(text, "f").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let out =
        run_graph(&module, "f", args, &mut NoKernels).unwrap_or_else(|e| panic!("{e}\n{text}"));
    out.iter().map(|a| format!("{:?} {}", a.dims, a.text())).collect()
}

pub fn refused(text: &str, args: &[HostArray]) -> String {
    let module = tessera_ir::parse_module(text, "f").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let errors = run_graph(&module, "f", args, &mut NoKernels).unwrap_err();
    errors.iter().map(|d| format!("{} {}", d.code, d.message)).collect::<Vec<_>>().join("\n")
}

/// One op on parameters `%a`, `%b` … of the arguments' types, with one result.
fn one(op: &str, ty: &str, args: &[HostArray]) -> String {
    let names = ["a", "b", "c", "d"];
    let params: Vec<_> = names
        .iter()
        .zip(args)
        .map(|(n, a)| format!("%{n}: tensor<{:?}, {}>", a.dims, a.dtype))
        .collect();
    let text = format!(
        "func @f({}) {{\n  %r = graph.{op} : {ty}\n  graph.return %r\n}}\n",
        params.join(", ")
    );
    eval(&text, args).remove(0)
}

fn f32s(dims: &[i64], values: &[f64]) -> HostArray {
    array(dims, DType::F32, values)
}

fn counted(dims: &[i64], dtype: DType) -> HostArray {
    let n = dims.iter().product::<i64>();
    array(dims, dtype, &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

#[test]
fn elementwise_ops_compute_in_the_carrier_and_store_once() {
    let x = f32s(&[3], &[1.0, -2.0, f64::NAN]);
    let y = f32s(&[3], &[2.0, 5.0, 1.0]);
    assert_eq!(
        one("maximum %a, %b", "tensor<[3], f32>", &[x.clone(), y.clone()]),
        "[3] [2.0, 5.0, nan]"
    );
    assert_eq!(one("lt %a, %b", "tensor<[3], bool>", &[x, y]), "[3] [true, true, false]");
    // 1 + 2^-8 lies between two bf16 numbers; the tie goes to even.
    let a = array(&[2], DType::BF16, &[1.0, 256.0]);
    let b = array(&[2], DType::BF16, &[0.00390625, 1.0]);
    assert_eq!(one("add %a, %b", "tensor<[2], bf16>", &[a, b]), "[2] [1.0, 256.0]");
    let a = array(&[3], DType::I8, &[127.0, -128.0, 100.0]);
    let b = array(&[3], DType::I8, &[1.0, 1.0, 100.0]);
    assert_eq!(one("add %a, %b", "tensor<[3], i8>", &[a.clone(), b]), "[3] [-128, -127, -56]");
    assert_eq!(one("not %a", "tensor<[3], i8>", &[a]), "[3] [-128, 127, -101]");
    let a = array(&[2], DType::U8, &[200.0, 3.0]);
    assert_eq!(one("not %a", "tensor<[2], u8>", std::slice::from_ref(&a)), "[2] [55, 252]");
    assert_eq!(one("neg %a", "tensor<[2], u8>", &[a]), "[2] [56, 253]");
    let a = array(&[2], DType::Fp8E4M3, &[400.0, -400.0]);
    assert_eq!(one("add %a, %a", "tensor<[2], fp8_e4m3>", &[a]), "[2] [448.0, -448.0]");
}

#[test]
fn every_number_dtype_adds_sums_sorts_and_multiplies() {
    for &dtype in DType::ALL.iter().filter(|d| **d != DType::Bool) {
        let x = array(&[2, 2], dtype, &[2.0, 1.0, 1.0, 2.0]);
        let r = |op: &str, dims: &str| {
            one(op, &format!("tensor<{dims}, {dtype}>"), std::slice::from_ref(&x))
        };
        let show = |dims: &str, values: &[f64]| {
            let n = values.len() as i64;
            format!("{dims} {}", array(&[n], dtype, values).text())
        };
        assert_eq!(r("maximum %a, %a", "[2, 2]"), show("[2, 2]", &[2.0, 1.0, 1.0, 2.0]), "{dtype}");
        assert_eq!(
            r("reduce %a {op = sum, axes = [1]}", "[2]"),
            show("[2]", &[3.0, 3.0]),
            "{dtype}"
        );
        assert_eq!(
            r("sort %a {axis = 1}", "[2, 2]"),
            show("[2, 2]", &[1.0, 2.0, 1.0, 2.0]),
            "{dtype}"
        );
        assert_eq!(
            r("scan %a {op = max, axis = 0}", "[2, 2]"),
            show("[2, 2]", &[2.0, 1.0, 2.0, 2.0]),
            "{dtype}"
        );
        let by = r("dot %a, %a {contract_a = [1], contract_b = [0]}", "[2, 2]");
        assert_eq!(by, show("[2, 2]", &[5.0, 4.0, 4.0, 5.0]), "{dtype}");
    }
}

#[test]
fn constants_positions_and_conversions() {
    assert_eq!(one("const {value = 3}", "tensor<[2], i4>", &[]), "[2] [3, 3]");
    assert_eq!(one("const {data = \"0100feff\"}", "tensor<[2], i16>", &[]), "[2] [1, -2]");
    assert_eq!(one("const {value = -1}", "tensor<[], u64>", &[]), "[] [18446744073709551615]");
    assert_eq!(one("iota {axis = 0}", "tensor<[2, 2], bf16>", &[]), "[2, 2] [0.0, 0.0, 1.0, 1.0]");
    assert_eq!(one("iota {axis = 1}", "tensor<[2, 0], i32>", &[]), "[2, 0] []");
    let x = f32s(&[4], &[2.5, -2.5, 300.0, f64::NAN]);
    assert_eq!(one("cast %a", "tensor<[4], i8>", std::slice::from_ref(&x)), "[4] [2, -2, 127, 0]");
    assert_eq!(
        one("cast %a {round = up}", "tensor<[4], bf16>", &[x]),
        "[4] [2.5, -2.5, 300.0, nan]"
    );
    let wide = array(&[2], DType::I32, &[300.0, -300.0]);
    assert_eq!(one("cast %a", "tensor<[2], i8>", std::slice::from_ref(&wide)), "[2] [44, -44]");
    assert_eq!(
        one("cast %a {saturate = true}", "tensor<[2], i8>", std::slice::from_ref(&wide)),
        "[2] [127, -128]"
    );
    assert_eq!(one("cast %a", "tensor<[2], i8 @saturate>", &[wide]), "[2] [127, -128]");
    assert_eq!(one("bitcast %a", "tensor<[1], i32>", &[f32s(&[1], &[1.0])]), "[1] [1065353216]");
    let c = array(&[], DType::Bool, &[0.0]);
    let (a, b) = (f32s(&[2], &[1.0, 2.0]), f32s(&[2], &[3.0, 4.0]));
    assert_eq!(
        one("select %a, %b, %c", "tensor<[2], f32>", &[c, a.clone(), b.clone()]),
        "[2] [3.0, 4.0]"
    );
    let c = array(&[2], DType::Bool, &[1.0, 0.0]);
    assert_eq!(one("select %a, %b, %c", "tensor<[2], f32>", &[c, a, b]), "[2] [1.0, 4.0]");
}

#[test]
fn shapes_are_rearranged_by_position() {
    let x = counted(&[2, 3], DType::I32);
    let i =
        |op: &str, dims: &str| one(op, &format!("tensor<{dims}, i32>"), std::slice::from_ref(&x));
    assert_eq!(i("transpose %a {perm = [1, 0]}", "[3, 2]"), "[3, 2] [0, 3, 1, 4, 2, 5]");
    assert_eq!(i("reshape %a", "[3, 2, 1]"), "[3, 2, 1] [0, 1, 2, 3, 4, 5]");
    assert_eq!(i("reverse %a {axes = [1]}", "[2, 3]"), "[2, 3] [2, 1, 0, 5, 4, 3]");
    assert_eq!(
        i("slice %a {start = [0, 0], limit = [2, 3], stride = [1, 2]}", "[2, 2]"),
        "[2, 2] [0, 2, 3, 5]"
    );
    assert_eq!(i("slice %a {start = [1, 3], limit = [2, 3]}", "[1, 0]"), "[1, 0] []");
    assert_eq!(
        i("concat %a, %a {axis = 1}", "[2, 6]"),
        "[2, 6] [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]"
    );
    let row = counted(&[3], DType::I32);
    assert_eq!(
        one("broadcast %a {dims = [1]}", "tensor<[2, 3], i32>", std::slice::from_ref(&row)),
        "[2, 3] [0, 1, 2, 0, 1, 2]"
    );
    let column = counted(&[2, 1], DType::I32);
    assert_eq!(
        one("broadcast %a {dims = [0, 2]}", "tensor<[2, 1, 2], i32>", &[column]),
        "[2, 1, 2] [0, 0, 1, 1]"
    );
    let nine = array(&[], DType::I32, &[9.0]);
    assert_eq!(
        one(
            "pad %a, %b {lo = [1], hi = [-1], interior = [1]}",
            "tensor<[5], i32>",
            &[row.clone(), nine.clone()]
        ),
        "[5] [9, 0, 9, 1, 9]"
    );
    assert_eq!(
        one("pad %a, %b {lo = [-1], hi = [2]}", "tensor<[4], i32>", &[row, nine]),
        "[4] [1, 2, 9, 9]"
    );
}

#[test]
fn parts_are_read_and_written_at_computed_places() {
    let x = counted(&[3, 2], DType::I32);
    let at = |v: f64| array(&[], DType::I64, &[v]);
    assert_eq!(
        one(
            "dynamic_slice %a at(%b, %c) {extent = [2, 1]}",
            "tensor<[2, 1], i32>",
            &[x.clone(), at(7.0), at(-3.0)]
        ),
        "[2, 1] [2, 4]"
    );
    let part = array(&[1, 2], DType::I32, &[8.0, 9.0]);
    assert_eq!(
        one(
            "dynamic_update_slice %a, %b at(%c, %d)",
            "tensor<[3, 2], i32>",
            &[x.clone(), part, at(1.0), at(1.0)]
        ),
        "[3, 2] [0, 1, 8, 9, 4, 5]"
    );
    // Rows, as an embedding takes them.
    let ix = array(&[3, 1], DType::I32, &[2.0, -1.0, 5.0]);
    let pair = [x.clone(), ix.clone()];
    assert_eq!(
        one("gather %a, %b {axes = [0]}", "tensor<[3, 2], i32>", &pair),
        "[3, 2] [4, 5, 0, 1, 4, 5]"
    );
    assert_eq!(
        one("gather %a, %b {axes = [0], oob = fill}", "tensor<[3, 2], i32>", &pair),
        "[3, 2] [4, 5, 0, 0, 0, 0]"
    );
    let seven = array(&[], DType::I32, &[7.0]);
    assert_eq!(
        one(
            "gather %a, %b other(%c) {axes = [1], oob = fill}",
            "tensor<[3, 3], i32>",
            &[x.clone(), array(&[3, 1], DType::I32, &[1.0, 0.0, 2.0]), seven]
        ),
        "[3, 3] [1, 3, 5, 0, 2, 4, 7, 7, 7]"
    );
    // One element for each row, as take_along_axis.
    let along = array(&[3, 1, 1], DType::I64, &[1.0, 0.0, 1.0]);
    assert_eq!(
        one("gather %a, %b {axes = [1], batch = 1}", "tensor<[3, 1], i32>", &[x.clone(), along]),
        "[3, 1] [1, 2, 5]"
    );
    // Two indices name one element.
    let both = array(&[2, 2], DType::I32, &[0.0, 1.0, 2.0, 0.0]);
    assert_eq!(
        one("gather %a, %b {axes = [0, 1]}", "tensor<[2], i32>", &[x.clone(), both]),
        "[2] [1, 4]"
    );
    let ix = array(&[3, 1], DType::I32, &[0.0, 0.0, 9.0]);
    let up = array(&[3, 2], DType::I32, &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    let all = [x, ix, up];
    let s = |attrs: &str| {
        one(&format!("scatter %a, %b, %c {{{attrs}, axes = [0]}}"), "tensor<[3, 2], i32>", &all)
    };
    assert_eq!(s("op = set"), "[3, 2] [30, 40, 2, 3, 4, 5]");
    assert_eq!(s("op = sum"), "[3, 2] [40, 61, 2, 3, 4, 5]");
    assert_eq!(s("op = max, oob = clamp"), "[3, 2] [30, 40, 2, 3, 50, 60]");
    assert_eq!(s("op = min"), "[3, 2] [0, 1, 2, 3, 4, 5]");
    assert_eq!(s("op = prod"), "[3, 2] [0, 800, 2, 3, 4, 5]");
    // 2049 is no f16 number: added one after another in f16 the ones would be lost.
    let x = array(&[1], DType::F16, &[2048.0]);
    let ix = array(&[2, 1], DType::I32, &[0.0, 0.0]);
    let ones = array(&[2], DType::F16, &[1.0, 1.0]);
    assert_eq!(
        one("scatter %a, %b, %c {op = sum, axes = [0]}", "tensor<[1], f16>", &[x, ix, ones]),
        "[1] [2050.0]"
    );
}

#[test]
fn reductions_take_the_canonical_order() {
    let values: Vec<f64> = (0..300).map(|i| ((i * 7919) % 1013) as f64 / 3.0).collect();
    let x = f32s(&[300], &values);
    let wanted = canonical_sum_f32(x.values().iter().map(|&v| v as f32));
    assert_eq!(
        one("reduce %a {op = sum, axes = [0]}", "tensor<[], f32>", &[x]),
        format!("[] [{wanted:?}]")
    );
    // Over two axes a position is that of both.
    let grid = f32s(&[2, 3, 50], &values);
    let both =
        one("reduce %a {op = sum, axes = [0, 2]}", "tensor<[3], f32>", std::slice::from_ref(&grid));
    let v = grid.values();
    let sums: Vec<f32> = (0..3)
        .map(|r| canonical_sum_f32((0..100).map(|k| v[k / 50 * 150 + r * 50 + k % 50] as f32)))
        .collect();
    assert_eq!(both, format!("[3] {sums:?}"));
    let none = |dtype| array(&[2, 0], dtype, &[]);
    let r = |op: &str, dtype: DType| {
        one(
            &format!("reduce %a {{op = {op}, axes = [1]}}"),
            &format!("tensor<[2], {dtype}>"),
            &[none(dtype)],
        )
    };
    // Nothing adds up to +0, though a sum begins with -0 so that sums of -0 are.
    assert_eq!(r("sum", DType::F32), "[2] [0.0, 0.0]");
    assert_eq!(r("max", DType::I8), "[2] [-128, -128]");
    assert_eq!(r("min", DType::U8), "[2] [255, 255]");
    assert_eq!(r("max", DType::Fp8E4M3), "[2] [-448.0, -448.0]");
    assert_eq!(r("and", DType::Bool), "[2] [true, true]");
    // The sum is kept in f32 and stored once; with an accumulator of f16 every step is rounded.
    // Both ones are added to 2048, in its own lane and when lanes are folded.
    let mut values = vec![0.0; 65];
    (values[0], values[32], values[64]) = (2048.0, 1.0, 1.0);
    let x = array(&[65], DType::F16, &values);
    let text = |policy: &str| {
        format!(
            "func @f(%a: tensor<[n], f16{policy}>) {{\n  %r = graph.reduce %a {{op = sum, axes = [0]}} : tensor<[], f16{policy}>\n  graph.return %r\n}}\n"
        )
    };
    assert_eq!(eval(&text(""), std::slice::from_ref(&x)), ["[] [2050.0]"]);
    assert_eq!(eval(&text(" @accum(f16)"), &[x]), ["[] [2048.0]"]);
    let nan = f32s(&[1, 4], &[1.0, f64::NAN, 9.0, f64::NAN]);
    assert_eq!(
        one("argreduce %a {op = max, axis = 1}", "tensor<[1], i64>", std::slice::from_ref(&nan)),
        "[1] [1]"
    );
    assert_eq!(one("reduce %a {op = max, axes = [1]}", "tensor<[1], f32>", &[nan]), "[1] [nan]");
    let ties = counted(&[2, 2], DType::I32);
    assert_eq!(one("argreduce %a {op = min, axis = 0}", "tensor<[2], i64>", &[ties]), "[2] [0, 0]");
}

#[test]
fn scans_go_both_ways_and_sorts_are_stable() {
    let x = array(&[2, 3], DType::I32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let s = |attrs: &str| {
        one(&format!("scan %a {{{attrs}}}"), "tensor<[2, 3], i32>", std::slice::from_ref(&x))
    };
    assert_eq!(s("op = sum, axis = 1"), "[2, 3] [1, 3, 6, 4, 9, 15]");
    assert_eq!(s("op = sum, axis = 0"), "[2, 3] [1, 2, 3, 5, 7, 9]");
    assert_eq!(s("op = sum, axis = 1, reverse = true"), "[2, 3] [6, 5, 3, 15, 11, 6]");
    assert_eq!(s("op = prod, axis = 1, exclusive = true"), "[2, 3] [1, 1, 2, 1, 4, 20]");
    assert_eq!(
        s("op = sum, axis = 1, exclusive = true, reverse = true"),
        "[2, 3] [5, 3, 0, 11, 6, 0]"
    );
    // Kept in f32: 2048 + 1 + 1 is 2050, though 2049 is stored as 2048.
    let h = array(&[3], DType::F16, &[2048.0, 1.0, 1.0]);
    assert_eq!(
        one("scan %a {op = sum, axis = 0}", "tensor<[3], f16>", &[h]),
        "[3] [2048.0, 2048.0, 2050.0]"
    );
    let text = |attrs: &str| {
        format!(
            "func @f(%k: tensor<[6], f32>, %v: tensor<[6], i32>) {{\n  %a, %b = graph.sort %k, %v {{{attrs}}} : tensor<[6], f32>, tensor<[6], i32>\n  graph.return %a, %b\n}}\n"
        )
    };
    let k = f32s(&[6], &[2.0, f64::NAN, 0.0, -0.0, 2.0, -1.0]);
    let v = counted(&[6], DType::I32);
    let args = [k, v];
    assert_eq!(
        eval(&text("axis = 0"), &args),
        ["[6] [-1.0, 0.0, -0.0, 2.0, 2.0, nan]", "[6] [5, 2, 3, 0, 4, 1]"]
    );
    assert_eq!(
        eval(&text("axis = 0, descending = true"), &args),
        ["[6] [nan, 2.0, 2.0, 0.0, -0.0, -1.0]", "[6] [1, 0, 4, 2, 3, 5]"]
    );
    let keys = [
        f32s(&[6], &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]),
        array(&[6], DType::I32, &[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]),
    ];
    assert_eq!(eval(&text("axis = 0, keys = 2"), &keys)[1], "[6] [0, 2, 4, 1, 3, 5]");
    let x = array(&[2, 2], DType::I32, &[3.0, 1.0, 2.0, 5.0]);
    assert_eq!(one("sort %a {axis = 0}", "tensor<[2, 2], i32>", &[x]), "[2, 2] [2, 1, 3, 5]");
}

#[test]
fn products_are_summed_in_the_accumulator() {
    let a = counted(&[2, 3], DType::F32);
    let b = counted(&[3, 2], DType::F32);
    assert_eq!(
        one(
            "dot %a, %b {contract_a = [1], contract_b = [0]}",
            "tensor<[2, 2], f32>",
            &[a.clone(), b.clone()]
        ),
        "[2, 2] [10.0, 13.0, 28.0, 40.0]"
    );
    assert_eq!(
        one(
            "dot %a, %b {batch_a = [1], batch_b = [0], contract_a = [], contract_b = []}",
            "tensor<[3, 2, 2], f32>",
            &[a.clone(), b]
        ),
        "[3, 2, 2] [0.0, 0.0, 0.0, 3.0, 2.0, 3.0, 8.0, 12.0, 8.0, 10.0, 20.0, 25.0]"
    );
    assert_eq!(
        one(
            "dot %a, %a {contract_a = [0, 1], contract_b = [0, 1], out = f64}",
            "tensor<[], f64>",
            &[a]
        ),
        "[] [55.0]"
    );
    let none = f32s(&[2, 0], &[]);
    assert_eq!(
        one("dot %a, %a {contract_a = [1], contract_b = [1]}", "tensor<[2, 2], f32>", &[none]),
        "[2, 2] [0.0, 0.0, 0.0, 0.0]"
    );
    let bytes = [array(&[2], DType::I8, &[100.0, 100.0]), array(&[2], DType::U8, &[200.0, 200.0])];
    let attrs = "contract_a = [0], contract_b = [0]";
    assert_eq!(one(&format!("dot %a, %b {{{attrs}}}"), "tensor<[], i32>", &bytes), "[] [40000]");
    let wide = [array(&[2], DType::I64, &[4e9, 1.0]), array(&[2], DType::I64, &[4e9, 1.0])];
    assert_eq!(
        one(&format!("dot %a, %b {{{attrs}}}"), "tensor<[], i64>", &wide),
        "[] [16000000000000000001]".replace(
            "16000000000000000001",
            &4_000_000_000i64.wrapping_mul(4_000_000_000).wrapping_add(1).to_string()
        )
    );
    // 2048 + 1 in f16 stays 2048; in f32 it does not.
    let half =
        [array(&[3], DType::F16, &[2048.0, 1.0, 1.0]), array(&[3], DType::F16, &[1.0, 1.0, 1.0])];
    assert_eq!(one(&format!("dot %a, %b {{{attrs}}}"), "tensor<[], f16>", &half), "[] [2050.0]");
    assert_eq!(
        one(&format!("dot %a, %b {{{attrs}, accum = f16}}"), "tensor<[], f16>", &half),
        "[] [2048.0]"
    );
}

#[test]
fn convolutions_and_windows_move_by_their_strides() {
    let x = counted(&[1, 1, 5], DType::F32);
    let w = f32s(&[1, 1, 2], &[1.0, 10.0]);
    let c = |attrs: &str, dims: &str| {
        one(
            &format!("conv %a, %b{attrs}"),
            &format!("tensor<{dims}, f32>"),
            &[x.clone(), w.clone()],
        )
    };
    assert_eq!(c("", "[1, 1, 4]"), "[1, 1, 4] [10.0, 21.0, 32.0, 43.0]");
    assert_eq!(
        c(" {strides = [2], lo = [1], hi = [0]}", "[1, 1, 3]"),
        "[1, 1, 3] [0.0, 21.0, 43.0]"
    );
    assert_eq!(c(" {dilate_w = [3]}", "[1, 1, 2]"), "[1, 1, 2] [30.0, 41.0]");
    assert_eq!(
        c(" {dilate_x = [2], lo = [-1], hi = [-1]}", "[1, 1, 6]"),
        "[1, 1, 6] [10.0, 1.0, 20.0, 2.0, 30.0, 3.0]"
    );
    // Two groups of one channel each, and two outputs a group.
    let x = f32s(&[1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let w = f32s(&[4, 1, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        one("conv %a, %b {groups = 2}", "tensor<[1, 4, 1, 2], f32>", &[x, w]),
        "[1, 4, 1, 2] [1.0, 2.0, 2.0, 4.0, 9.0, 12.0, 12.0, 16.0]"
    );
    // Channels are summed.
    let x = f32s(&[2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
    let w = f32s(&[1, 2, 1], &[1.0, 10.0]);
    assert_eq!(one("conv %a, %b", "tensor<[2, 1, 1], f32>", &[x, w]), "[2, 1, 1] [21.0, 43.0]");
    let x = array(&[4], DType::I32, &[3.0, 1.0, 4.0, 1.0]);
    let win = |op: &str, attrs: &str, ty: &str| {
        one(&format!("{op} %a {{op = max, window = [2], {attrs}}}"), ty, std::slice::from_ref(&x))
    };
    assert_eq!(win("window_reduce", "strides = [1]", "tensor<[3], i32>"), "[3] [3, 4, 4]");
    assert_eq!(win("window_argreduce", "strides = [1]", "tensor<[3], i64>"), "[3] [0, 1, 0]");
    assert_eq!(
        win("window_reduce", "strides = [2], lo = [2], hi = [1]", "tensor<[3], i32>"),
        "[3] [-2147483648, 3, 4]"
    );
    assert_eq!(
        win("window_argreduce", "strides = [2], lo = [1], hi = [1]", "tensor<[3], i64>"),
        "[3] [1, 1, 0]"
    );
    assert_eq!(win("window_reduce", "dilate = [3]", "tensor<[1], i32>"), "[1] [3]");
    let square = counted(&[2, 2], DType::F32);
    assert_eq!(
        one("window_reduce %a {op = sum, window = [2, 2]}", "tensor<[1, 1], f32>", &[square]),
        "[1, 1] [6.0]"
    );
}

#[test]
fn random_words_are_those_of_the_generator() {
    let key = HostArray::from_scalars(&[], DType::I64, &[Scalar::I64(-7)]);
    let counter = array(&[3], DType::I64, &[0.0, 1.0, 5e9]);
    for word in 0..4 {
        let got = one(
            &format!("philox %a, %b {{word = {word}}}"),
            "tensor<[3], u32>",
            &[key.clone(), counter.clone()],
        );
        let wanted: Vec<u32> =
            [0u64, 1, 5_000_000_000].iter().map(|&c| philox4(-7i64 as u64, c)[word]).collect();
        assert_eq!(got, format!("[3] {wanted:?}"));
    }
    let keys = array(&[2], DType::I64, &[1.0, 2.0]);
    let got = one(
        "philox %a, %b",
        "tensor<[2], u32>",
        &[keys.clone(), array(&[2], DType::I64, &[9.0, 9.0])],
    );
    assert_eq!(got, format!("[2] {:?}", [philox4(1, 9)[0], philox4(2, 9)[0]]));
}
