//! Whole kernels, from their text to the arrays they leave behind.

mod check;
mod check_lanes;
mod check_numbers;
mod control;
mod faults;
mod gemm;
mod graph;
mod graph_control;
mod inner;
mod lanes;
mod memory;
mod print;
mod ranks;
mod schedule;
mod staged;
mod values;
mod watch;

use tessera_diag::Diagnostics;
use tessera_interp::HostArray;
use tessera_numerics::DType;
use tessera_target::{ArgValue, LaunchArgs};

fn args(params: Vec<ArgValue>, grid: [i64; 3]) -> LaunchArgs {
    LaunchArgs { params, dims: Default::default(), grid, domain: [0; 3], lanes: 1 }
}

/// A launch of a lane kernel of `domain` lanes, `lanes` to a group.
fn lanes(params: Vec<ArgValue>, domain: i64, lanes: i64) -> LaunchArgs {
    let groups = (domain + lanes - 1) / lanes;
    LaunchArgs {
        params,
        dims: Default::default(),
        grid: [groups, 1, 1],
        domain: [domain, 1, 1],
        lanes,
    }
}

fn run(text: &str, args: &LaunchArgs) -> Result<(), Diagnostics> {
    tessera_interp::run(&tessera_tile::parse(text).unwrap(), args)
}

/// The code and message of the one thing that is wrong.
fn refusal(result: Result<(), Diagnostics>) -> String {
    let errors = result.unwrap_err();
    let list: Vec<_> = errors.iter().map(|d| format!("{} {}", d.code, d.message)).collect();
    list.join("\n")
}

/// A group kernel that loads `x` whole, runs `body` from `%t` to `%r`, and stores `%r` whole.
fn through(x: &mut HostArray, body: &str, out: (&[i64], DType)) -> HostArray {
    let view = |dims: &[i64], dtype: DType, privilege: &str| {
        format!("view<{dims:?}, {dtype}, {privilege}>")
    };
    let zeros = |n: usize| vec!["%zero"; n].join(", ");
    let tile = |dims: &[i64], dtype: DType| {
        let dims: String = dims.iter().map(|d| format!("{d}x")).collect();
        format!("tile<{dims}{dtype}>")
    };
    let at = |n: usize| if n == 0 { String::new() } else { format!(" at({})", zeros(n)) };
    let ty = if x.dims.is_empty() { x.dtype.to_string() } else { tile(&x.dims, x.dtype) };
    let mut y = HostArray::zeros(out.0, out.1);
    let text = format!(
        "func @f(%x: {}, %y: {}) {{kind = group}} {{
           %zero = tile.const {{value = 0}} : i64
           %t = tile.load %x{} {{extent = {:?}}} : {ty}
           {body}
           tile.store %y, %r{} {{extent = {:?}}}
           tile.return
         }}",
        view(&x.dims, x.dtype, "read"),
        view(out.0, out.1, "write"),
        at(x.dims.len()),
        x.dims,
        at(out.0.len()),
        out.0,
    );
    run(&text, &args(vec![x.as_arg(), y.as_arg()], [1; 3])).unwrap();
    y
}
