use super::{args, refusal, run};
use tessera_interp::{HostArray, Interp};
use tessera_numerics::{DType, Profile, Scalar};
use tessera_target::{ArgValue, Backend, CompileOptions, LaunchArgs};

const COPY: &str =
    "func @copy(%x: view<[n, 2], f32, read>, %y: view<[n, 2], f32, write>) {kind = group} {
  %z = tile.const {value = 0} : i64
  %t = tile.load %x at(%z, %z) {extent = [2, 2]} : tile<2x2xf32>
  tile.store %y, %t at(%z, %z) {extent = [2, 2]}
  tile.return
}
";

fn compile(text: &str) -> Result<Box<dyn tessera_target::Artifact>, tessera_diag::Diagnostics> {
    let options = CompileOptions::new(Profile::Default);
    Interp.compile(&tessera_tile::parse(text).unwrap(), &options)
}

#[test]
fn artifact_shows_what_it_executes_and_runs_it() {
    let artifact = compile(COPY).unwrap();
    assert_eq!(
        artifact.target_text(),
        format!("module @copy : target.interp {{version = 1}}\n\n{COPY}")
    );
    let renamed = compile(&COPY.replace("%t", "%other")).unwrap();
    assert_eq!(artifact.hash(), renamed.hash());
    assert_ne!(artifact.hash(), compile(&COPY.replace("value = 0", "value = 1")).unwrap().hash());
    let mut x = HostArray::new(&[2, 2], DType::F32, &[1.0, 2.0, 3.0, 4.0]);
    let mut y = HostArray::zeros(&[2, 2], DType::F32);
    for _ in 0..2 {
        artifact.launch(&args(vec![x.as_arg(), y.as_arg()], [1; 3])).unwrap();
        assert_eq!(y.values(), x.values());
    }
    assert_eq!(artifact.resources(), [("ops", "3".to_string()), ("shared_bytes", "0".to_string())]);
    assert_eq!((Interp.name(), Interp.caps().backend), ("interp", "interp"));
}

#[test]
fn what_cannot_be_run_is_refused_at_the_op() {
    let refused = |text: &str| refusal(compile(text).map(drop));
    let in_group = |body: &str| {
        format!(
            "func @f(%x: view<[n], bf16, read_write>, %v: f32) {{kind = group}} {{\n{body}\n  tile.return\n}}"
        )
    };
    assert!(refused("func @f() {\n  tile.return\n}").starts_with("E_GRAPH_INVALID"));
    let origin = "  %m = tile.origin {name = tile_m, dim = [n], step = 64} : i64";
    assert!(refused(&in_group(origin)).starts_with("E_UNSUPPORTED an implicit tile origin"));
    let chance = "  %m = tile.cast %v {round = stochastic} : bf16";
    assert!(refused(&in_group(chance)).starts_with("E_UNSUPPORTED stochastic"));
    let huge = "  %m = tile.const {value = 0.0} : tile<4294967296x4294967296xf32>";
    assert!(refused(&in_group(huge)).starts_with("E_TILE_LOWERING"));
    let bits = "  %z = tile.const {value = 0} : i64\n  tile.accumulate %x, %v at(%z) {op = xor, extent = [0]}";
    assert!(refused(&in_group(bits)).starts_with("E_TYPE"));
    let packed =
        "func @f(%x: view<[n], fp4_e2m1 @packed, read>) {kind = group} {\n  tile.return\n}";
    assert!(refused(packed).starts_with("E_UNSUPPORTED packed"));
    let tile = "func @f(%x: tile<4xf32>) {kind = group} {\n  tile.return\n}";
    assert!(refused(tile).starts_with("E_UNSUPPORTED expected a scalar or a view"));
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let mut x = HostArray::zeros(&[2, 2], DType::F32);
    let mut narrow = HostArray::zeros(&[2, 3], DType::F32);
    let mut other = HostArray::zeros(&[2, 2], DType::BF16);
    let mut locked = x.as_arg();
    if let ArgValue::Buffer(b) = &mut locked {
        b.writable = false;
    }
    let scalar = ArgValue::Scalar(Scalar::F32(0.0));
    for (params, wanted) in [
        (vec![x.as_arg()], "E_ARGUMENT"),
        (vec![x.as_arg(), scalar], "E_ARGUMENT"),
        (vec![x.as_arg(), narrow.as_arg()], "E_LAUNCH_INVALID_SHAPE"),
        (vec![other.as_arg(), x.as_arg()], "E_ARGUMENT"),
        (vec![x.as_arg(), locked], "E_READ_ONLY"),
    ] {
        let message = refusal(run(COPY, &args(params, [1; 3])));
        assert!(message.starts_with(wanted), "{message}");
    }
    let text = "func @f(%x: view<[(a * b)], f32, read>) {kind = group} {\n  %n = tile.dim {name = a} : i64\n  tile.return\n}";
    let mut x = HostArray::zeros(&[6], DType::F32);
    let launch = args(vec![x.as_arg()], [1; 3]);
    assert!(
        refusal(run(text, &launch))
            .starts_with("E_ARGUMENT expected a value for the dimension `a`")
    );
    run(text, &LaunchArgs { dims: [("a".to_string(), 2)].into(), ..launch }).unwrap();
}
