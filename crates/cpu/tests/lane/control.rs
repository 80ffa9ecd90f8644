//! Divergent loops and branches.

use super::harness::{Arg, Kernel, Layout, SIZES, array, ints};
use tessera_numerics::{DType, Scalar};

#[test]
fn lanes_leave_a_while_loop_one_by_one() {
    let kernel = Kernel::new(
        "func @mandelbrot(%re: view<[w], f64, read>, %im: view<[h], f64, read>, %limit: i64, %count: view<[h, w], i64, write>) {kind = lane} {
           %i = tile.linear_id : i64
           %H = tile.dim {name = h} : i64
           %W = tile.dim {name = w} : i64
           %n = tile.mul %H, %W : i64
           %c = tile.lt %i, %n : bool
           tile.if %c do {
             %2 = tile.mod %i, %W : i64
             %cx = tile.load %re at(%2) {extent = [0]} : f64
             %3 = tile.floordiv %i, %W : i64
             %cy = tile.load %im at(%3) {extent = [0]} : f64
             %4 = tile.const {value = 0} : i64
             %5 = tile.const {value = 0.0} : f64
             %steps, %x, %y = tile.while init(%4, %5, %5) : i64, f64, f64 do (%s1: i64, %x1: f64, %y1: f64) {
               %7 = tile.mul %x1, %x1 : f64
               %8 = tile.mul %y1, %y1 : f64
               %9 = tile.add %7, %8 : f64
               %10 = tile.const {value = 4.0} : f64
               %11 = tile.le %9, %10 : bool
               %13 = tile.lt %s1, %limit : bool
               %14 = tile.and %11, %13 : bool
               tile.yield %14
             } do (%s2: i64, %x2: f64, %y2: f64) {
               %15 = tile.mul %x2, %x2 : f64
               %16 = tile.mul %y2, %y2 : f64
               %17 = tile.sub %15, %16 : f64
               %x3 = tile.add %17, %cx : f64
               %18 = tile.const {value = 2.0} : f64
               %19 = tile.mul %18, %x2 : f64
               %20 = tile.mul %19, %y2 : f64
               %y3 = tile.add %20, %cy : f64
               %21 = tile.const {value = 1} : i64
               %s3 = tile.add %s2, %21 : i64
               tile.yield %s3, %x3, %y3
             }
             tile.store %count, %steps at(%3, %2) {extent = [0, 0]}
             tile.yield
           } do {
             tile.yield
           }
           tile.return
         }",
    );
    for (w, h) in [(1, 1), (31, 9), (64, 5), (0, 4), (7, 3)] {
        let re = array(&[w], DType::F64, Layout::Rows, 1);
        let im = array(&[h], DType::F64, Layout::Rows, 2);
        let small = |arg: Arg| {
            let Arg::Array(mut a) = arg else { unreachable!() };
            for code in a.bytes.chunks_exact_mut(8) {
                let v = f64::from_le_bytes(code.try_into().unwrap()) / 12.0;
                code.copy_from_slice(&v.to_le_bytes());
            }
            Arg::Array(a)
        };
        let count = array(&[h, w], DType::I64, Layout::Rows, 3);
        let limit = Arg::Scalar(Scalar::I64(40));
        kernel.check(&[small(re), small(im), limit, count], w * h + 3, 64).unwrap();
    }
}

#[test]
fn rows_of_different_length_are_summed() {
    let kernel = Kernel::new(
        "func @spmv(%starts: view<[p], i32, read>, %columns: view<[z], i32, read>, %values: view<[z], f32, read>, %x: view<[n], f32, read>, %y: view<[m], f32, write>) {kind = lane} {
           %i = tile.linear_id : i64
           %M = tile.dim {name = m} : i64
           %0 = tile.ge %i, %M : bool
           tile.if %0 do {
             tile.yield
           } do {
             %1 = tile.const {value = 1} : i64
             %2 = tile.add %i, %1 : i64
             %3 = tile.load %starts at(%i) {extent = [0]} : i32
             %4 = tile.cast %3 : i64
             %5 = tile.load %starts at(%2) {extent = [0]} : i32
             %6 = tile.cast %5 : i64
             %8 = tile.const {value = 0.0} : f32
             %total = tile.for %4, %6, %1 init(%8) : f32 do (%k: i64, %t1: f32) {
               %9 = tile.load %columns at(%k) {extent = [0]} : i32
               %10 = tile.cast %9 : i64
               %11 = tile.load %values at(%k) {extent = [0]} : f32
               %12 = tile.load %x at(%10) {extent = [0]} : f32
               %13 = tile.mul %11, %12 : f32
               %t2 = tile.add %t1, %13 : f32
               tile.yield %t2
             }
             tile.store %y, %total at(%i) {extent = [0]}
             tile.yield
           }
           tile.return
         }",
    );
    for m in [1, 16, 17, 60] {
        let starts: Vec<i32> = (0..=m).map(|i| (i * i * 5 % 9 + 4 * i) as i32).collect();
        let z = *starts.iter().max().unwrap() as i64;
        let columns: Vec<i32> = (0..z).map(|i| (i * 17 % 40) as i32 - 2).collect();
        let values = array(&[z], DType::F32, Layout::Rows, 1);
        let x = array(&[35], DType::F32, Layout::Rows, 2);
        let y = array(&[m], DType::F32, Layout::Rows, 3);
        kernel.check(&[ints(&starts), ints(&columns), values, x, y], m, 32).unwrap();
    }
}

/// Branches in branches in loops, with values that only some lanes change.
const TANGLE: &str = "
func @tangle(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %z: view<[n], i64, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %3 = tile.const {value = 3} : i64
  %zero = tile.const {value = 0.0} : f32
  %two = tile.const {value = 2.0} : f32
  %s, %t = tile.for %0, %k, %1 init(%v, %i) : f32, i64 do (%j: i64, %a: f32, %b: i64) {
    %c = tile.gt %a, %zero : bool
    %a2, %b2 = tile.if %c : f32, i64 do {
      %m = tile.mod %b, %3 : i64
      %d = tile.eq %m, %1 : bool
      %e, %g = tile.if %d : f32, i64 do {
        %h = tile.sub %a, %two : f32
        %p = tile.for %0, %m, %1 init(%h) : f32 do (%q: i64, %r: f32) {
          %w = tile.cast %q : f32
          %u = tile.add %r, %w : f32
          tile.yield %u
        }
        tile.yield %p, %b
      } do {
        %h2 = tile.mul %a, %two : f32
        %b3 = tile.add %b, %j : i64
        tile.store %z, %b3 at(%i) {extent = [0]}
        tile.yield %h2, %b3
      }
      tile.yield %e, %g
    } do {
      %n2 = tile.neg %a : f32
      %l = tile.lt %b, %3 : bool
      %b4 = tile.if %l : i64 do {
        %b5 = tile.add %b, %3 : i64
        tile.yield %b5
      } do {
        tile.yield %b
      }
      tile.yield %n2, %b4
    }
    tile.yield %a2, %b2
  }
  tile.store %y, %s at(%i) {extent = [0]}
  tile.store %z, %t at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn nested_branches_and_loops_merge_as_the_interpreter_merges() {
    let kernel = Kernel::new(TANGLE);
    for n in SIZES {
        for k in [0, 1, 4] {
            let x = array(&[n], DType::F32, Layout::Rows, n as u64);
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            let z = array(&[n], DType::I64, Layout::Rows, 3);
            kernel.check(&[x, y, z, Arg::Scalar(Scalar::I64(k))], n, 64).unwrap();
        }
    }
}

#[test]
fn loops_end_at_the_ends_of_the_number_range() {
    let kernel = Kernel::new(
        "func @f(%lo: view<[n], i64, read>, %hi: view<[n], i64, read>, %step: view<[n], i64, read>, %y: view<[n], i64, write>, %top: i64, %by: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %a = tile.load %lo at(%i) {extent = [0]} : i64
           %b = tile.load %hi at(%i) {extent = [0]} : i64
           %c = tile.load %step at(%i) {extent = [0]} : i64
           %n = tile.for %a, %b, %c init(%0) : i64 do (%k: i64, %m: i64) {
             %p = tile.add %m, %1 : i64
             tile.yield %p
           }
           %o = tile.for %a, %top, %by init(%n) : i64 do (%k2: i64, %m2: i64) {
             %p2 = tile.add %m2, %1 : i64
             tile.yield %p2
           }
           %q = tile.for %i, %b, %by init(%o) : i64 do (%k3: i64, %m3: i64) {
             %p3 = tile.add %m3, %k3 : i64
             tile.yield %p3
           }
           tile.store %y, %q at(%i) {extent = [0]}
           tile.return
         }",
    );
    const FAR: i64 = i64::MAX - 10;
    let column = |f: &dyn Fn(i64) -> i64| {
        let Arg::Array(mut a) = array(&[20], DType::I64, Layout::Rows, 1) else { unreachable!() };
        for i in 0..20 {
            a.bytes[a.first + 8 * i..][..8].copy_from_slice(&f(i as i64).to_le_bytes());
        }
        Arg::Array(a)
    };
    let y = array(&[20], DType::I64, Layout::Rows, 4);
    let by = |k: i64| Arg::Scalar(Scalar::I64(k));
    type Column = &'static dyn Fn(i64) -> i64;
    let cases: [(Column, Column, Column); 3] = [
        (&|i| i, &|i| 3 * i - 20, &|i| i % 3 + 1),
        (&|i| FAR + i % 11, &|_| i64::MAX, &|i| i + 1),
        (&|i| i64::MIN + i, &|i| i64::MAX - i, &|_| i64::MAX / 2),
    ];
    for (lo, hi, step) in cases {
        let args = [column(lo), column(hi), column(step), y.clone(), by(30), by(i64::MAX / 3)];
        kernel.check(&args, 20, 16).unwrap();
    }
    let args = [column(&|_| 0), column(&|_| 5), column(&|i| 7 - i), y, by(30), by(1)];
    let error = kernel.check(&args[..], 7, 16);
    error.unwrap();
}

#[test]
fn positions_that_loops_move_stay_inside() {
    let kernel = Kernel::new(
        "func @conv(%x: view<[n], f32, read>, %w: view<[k], f32, read>, %y: view<[n], f32, write>, %o: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %2 = tile.const {value = 2} : i64
           %zero = tile.const {value = 0.0} : f32
           %K = tile.dim {name = k} : i64
           %s = tile.for %0, %K, %1 init(%zero) : f32 do (%j: i64, %a: f32) {
             %p = tile.add %i, %j : i64
             %q = tile.sub %p, %o : i64
             %b = tile.load %x at(%q) {extent = [0]} : f32
             %j2 = tile.mul %j, %2 : i64
             %r = tile.sub %i, %j2 : i64
             %f = tile.load %x at(%r) {extent = [0]} : f32
             %c = tile.load %w at(%j) {extent = [0]} : f32
             %d = tile.mul %b, %c : f32
             %e = tile.add %a, %d : f32
             %g = tile.add %e, %f : f32
             tile.yield %g
           }
           tile.store %y, %s at(%i) {extent = [0]}
           tile.return
         }",
    );
    for n in [1, 16, 100] {
        for k in [0, 1, 5, 40] {
            for o in [0, 2, -60, 1 << 50, i64::MIN] {
                let x = array(&[n], DType::F32, Layout::Rows, 1);
                let w = array(&[k], DType::F32, Layout::Rows, 2);
                let y = array(&[n], DType::F32, Layout::Rows, 3);
                kernel.check(&[x, w, y, Arg::Scalar(Scalar::I64(o))], n, 64).unwrap();
            }
        }
    }
}

#[test]
fn an_assertion_names_the_group_and_the_lane() {
    let kernel = Kernel::new(
        "func @check(%x: view<[n], f32, read>, %low: f32) {kind = lane} {
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %c = tile.ge %v, %low : bool
           tile.assert %c {text = \"too low\"}
           tile.return
         }",
    );
    let values: Vec<f32> = (0..100).map(|i| 100.0 - i as f32).collect();
    for low in [-3.0, 1.5, 30.0, 99.5] {
        let low_arg = Arg::Scalar(Scalar::F32(low));
        let result = kernel.check(&[super::harness::floats(&values), low_arg], 100, 24);
        assert_eq!(result.is_ok(), low < 1.0);
    }
}

#[test]
fn a_loop_that_does_not_step_forwards_is_an_error() {
    let text = |lo: &str| {
        format!(
            "func @f(%y: view<[n], i64, write>, %k: i64) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %0 = tile.const {{value = 0}} : i64
               %9 = tile.const {{value = 9}} : i64
               tile.for %0, %9, {lo} do (%j: i64) {{
                 tile.store %y, %j at(%i) {{extent = [0]}}
                 tile.yield
               }}
               tile.return
             }}"
        )
    };
    // The interpreter names the step, so only that there is an error is compared.
    let y = array(&[4], DType::I64, Layout::Rows, 1);
    for (step, k, good) in [("%k", 1, true), ("%k", 0, false), ("%i", 1, false)] {
        let (wanted, got) =
            Kernel::new(&text(step)).both(&[y.clone(), Arg::Scalar(Scalar::I64(k))], 4, 4);
        assert_eq!(wanted.is_ok(), good);
        for result in got {
            assert_eq!(result.is_ok(), good);
            assert!(
                good || result.unwrap_err().starts_with("E_ARGUMENT expected a loop step above 0")
            );
        }
    }
}
