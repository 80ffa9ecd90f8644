//! Names and arguments that other libraries have and this language does not: the help of the error.

use crate::common::*;
use tessera_frontend::Capture;

/// The errors of a kernel over `x: n f32; y: n f32; A: M,K bf16`, in which `np` is a module of Python.
fn errors_of(body: &str) -> Vec<(String, String)> {
    let lines: String = body.lines().map(|l| format!("    {l}\n")).collect();
    let text = format!("def k(x, y, A, a):\n{lines}");
    let mut d = decl(&text, "x: n f32; y: n f32; A: M,K bf16; a: f32", &[]);
    let opaque = |name: &str| (name.to_string(), Capture::Opaque("function".into()));
    let known: Vec<_> = ["np.dot", "np.exp", "np.quux", "helper", "jnp.matmul"].map(opaque).into();
    let known: Vec<(&str, Capture)> = known.iter().map(|(n, c)| (n.as_str(), c.clone())).collect();
    d.source = source(&text, &known);
    let Err(found) = tessera_frontend::Kernel::new(d) else { return Vec::new() };
    found
        .errors()
        .map(|e| (format!("{} {}", e.code, e.message), e.help.clone().unwrap_or_default()))
        .collect()
}

#[track_caller]
fn fix(body: &str, message: &str, help: &str) {
    let got = errors_of(body);
    let found = got.iter().any(|(m, h)| m.contains(message) && h.contains(help));
    assert!(found, "expected {message:?} and {help:?} in:\n{got:#?}");
    assert!(got.iter().all(|(m, h)| !h.is_empty() || is_excused(m)), "no fix in {got:#?}");
}

#[test]
fn names_of_triton_say_what_to_write() {
    fix("y[0:4] = tl.dot(x[0:4], x[0:4])", "`tl.dot` is Triton's", "ts.tile.mma");
    fix("b = tl.constexpr(4)", "`tl.constexpr`", "`int`");
    fix("for i in tl.static_range(4):\n    y[i] = 0.0", "tl.static_range", "ts.static_range(");
    fix("m = tl.program_id(0)", "tl.program_id", "ts.tile.program_id(axis)");
    fix("t = tl.load(x)", "tl.load", "arrays take the place of pointers");
    fix("t = ts.tile.constexpr", "`ts.tile.constexpr` is not known", "`int`");
    fix("t = ts.tile.make_block_ptr(x)", "make_block_ptr", "x[m:m + BM, k:k + BK]");
    fix("t = ts.tile.cdiv(n, 4)", "ts.tile.cdiv", "ts.cdiv");
    fix("t = triton.language.exp(a)", "Triton's", "ts.tile.exp(x)");
}

#[test]
fn names_of_cuda_say_what_to_write() {
    fix("__syncthreads()", "`__syncthreads` is not defined", "ts.tile.barrier()");
    fix("i = threadIdx.x", "`threadIdx.x` is not part of the kernel language", "local_id");
    fix("i = cuda.blockIdx.x", "`cuda.blockIdx.x` is Numba's", "program_id");
    fix("atomicAdd(x, 1.0)", "atomicAdd", "ts.tile.atomic_add(x[i], v)");
    fix("v = __shfl_down_sync(0, a, 1)", "__shfl_down_sync", "ts.tile.group.shuffle");
    fix("b = ts.tile.popcount(a)", "ts.tile.popcount", "shifts and masks");
}

#[test]
fn functions_of_numpy_and_jax_say_what_to_write() {
    fix("y[0] = np.dot(a, a)", "expected a function of the tile language", "ts.tile.mma");
    fix("y[0] = np.exp(a)", "expected a function of the tile language", "ts.tile.exp(x)");
    fix("y[0] = np.quux(a)", "expected a function of the tile language", "@ts.func");
    fix("y[0] = helper(a)", "expected a function of the tile language", "@ts.func");
    fix("t = jnp.matmul(A, A)", "expected a function of the tile language", "ts.tile.mma");
    fix("y[0] = ts.exp(a)", "`ts.exp` is not known", "write `ts.tile.exp`");
    fix("t = ts.tile.f32", "ts.tile.f32", "write `ts.f32`");
    fix("y[0] = math.erfc(a)", "`math.erfc` is not known", "ts.tile.erf");
    fix("y[0] = math.sqrtt(a)", "math.sqrtt", "did you mean `math.sqrt`?");
}

#[test]
fn methods_and_attributes_say_what_to_write() {
    let tile = "t = x[0:16]\n";
    fix(&format!("{tile}u = t.astype(ts.i32)"), "no attribute `astype`", "ts.tile.cast(x, dtype)");
    fix(&format!("{tile}y[0] = t.sum()"), "no attribute `sum`", "ts.tile.sum(x)");
    fix("y[0] = x.sum()", "no attribute `sum`", "ts.tile.sum(x[:])");
    fix(&format!("{tile}y[0] = t.ndim"), "no attribute `ndim`", "len(x.shape)");
    fix(&format!("{tile}y[0] = t.nonsense"), "no attribute `nonsense`", "`shape`, `dtype` and `T`");
    fix("x.at[0].set(1.0)", "no attribute `at`", "y[i] = v");
}

#[test]
fn keyword_arguments_are_named_and_repaired() {
    let tile = "t = A[0:16, 0:16]\n";
    fix(
        &format!("{tile}u = ts.tile.sum(t, axis=1, keepdim=True)"),
        "E_ARGUMENT `ts.tile.sum` has no parameter `keepdim`",
        "`keepdims=`",
    );
    fix(&format!("{tile}u = ts.tile.sum(t, dim=1)"), "has no parameter `dim`", "write `axis=`");
    fix(&format!("{tile}u = ts.tile.sum(t, axsi=1)"), "has no parameter `axsi`", "`axis=`?");
    fix(&format!("{tile}u = ts.tile.sum(t, 1, axis=1)"), "gets `axis` twice", "leave out one");
    fix(
        &format!("{tile}u = ts.tile.sum(t, 1, True, 2)"),
        "takes at most 3 arguments",
        "leave it out",
    );
    fix("u = ts.tile.sum()", "`ts.tile.sum` needs a value for `x`", "ts.tile.sum(x, axis=None");
    fix("t = ts.tile.load(x, 0, cache_modifier=\"cg\")", "cache_modifier", "leave it out");
    fix("ts.tile.atomic_add(x[0], 1.0, sem=\"relaxed\")", "`sem`", "order=");
    fix(&format!("{tile}u = ts.tile.mma(t, t, acc=t)"), "`acc`", "accumulator=");
    fix(
        &format!("{tile}u = ts.tile.mma(t, t, allow_tf32=True)"),
        "allow_tf32",
        "precision=\"tf32\"",
    );
}

/// Calls that report an error without a fix, by file, and why.
const SILENT: &[(&str, usize, &str)] = &[("host.rs", 1, "an assertion's text is the kernel's own")];

#[test]
fn errors_of_the_front_end_name_a_fix() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for folder in [root.join("api"), root.join("elab"), root] {
        let entries = std::fs::read_dir(&folder).expect("the sources");
        for path in entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_file()) {
            let text = std::fs::read_to_string(&path).expect("a source");
            let silent = text
                .split(".error(")
                .skip(1)
                .filter(|rest| rest.trim_start().starts_with("Code::"));
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let excused = SILENT.iter().find(|row| row.0 == name).map_or(0, |row| row.1);
            assert_eq!(
                silent.count(),
                excused,
                "{}: use `error_help` and say what to write",
                path.display()
            );
        }
    }
}
