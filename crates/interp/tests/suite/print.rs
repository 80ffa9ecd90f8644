//! What kernels print to the host.

use super::{args, lanes, run};
use std::sync::Mutex;
use tessera_interp::{HostArray, set_print};
use tessera_numerics::DType;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The one function of the process that gets lines; those of other tests' kernels are left out.
fn keep(line: &str) {
    if ["k[", "l[", "m["].iter().any(|name| line.starts_with(name)) {
        LINES.lock().unwrap().push(line.to_string());
    }
}

#[test]
fn lines_name_the_group_and_the_lane() {
    set_print(keep);
    let mut x = HostArray::new(&[2, 2], DType::F32, &[1.0, 2.5, f64::NAN, -0.0]);
    let group = "func @k(%x: view<[2, 2], f32, read>) {kind = group} {
           %p = tile.program_id {axis = 1} : i64
           %zero = tile.const {value = 0} : i64
           %t = tile.load %x at(%zero, %zero) {extent = [2, 2]} : tile<2x2xf32>
           tile.print %p, %t {text = \"p = {}, {{t}} = {}\"}
           tile.return
         }";
    run(group, &args(vec![x.as_arg()], [1, 2, 1])).unwrap();
    let lane = "func @l(%x: view<[2, 2], f32, read>) {kind = lane} {
           %i = tile.linear_id : i64
           %one = tile.const {value = 1} : i64
           %c = tile.ge %i, %one : bool
           tile.if %c do {
             tile.print %i {text = \"i {}\"}
             tile.yield
           } do {
             tile.yield
           }
           tile.return
         }";
    run(lane, &lanes(vec![x.as_arg()], 3, 2)).unwrap();
    let large = "func @m() {kind = group} {
           %t = tile.iota : tile<2000xi32>
           tile.print %t {text = \"{}\"}
           tile.return
         }";
    run(large, &args(vec![], [1; 3])).unwrap();
    assert_eq!(
        *LINES.lock().unwrap(),
        [
            "k[0, 0]: p = 0, {t} = [[1.0, 2.5], [nan, -0.0]]",
            "k[0, 1]: p = 1, {t} = [[1.0, 2.5], [nan, -0.0]]",
            "l[0] lane 1: i 1",
            "l[1] lane 0: i 2",
            "m[0]: [0, 1, 2, ..., 1997, 1998, 1999]",
        ]
    );
}
