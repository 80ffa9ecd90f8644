//! Loops and branches that lanes take together and apart.

use crate::Case;
use crate::harness::*;
use tessera_numerics::DType;

pub fn lanes_leave_a_while_loop_one_by_one(case: &Case) {
    let kernel = case.kernel("func @mandelbrot(%re: view<[w], f64, read>, %im: view<[h], f64, read>, %limit: i64, %count: view<[h, w], i64, write>) {kind = lane} {
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
         }");
    for (w, h) in [(1, 1), (31, 9), (64, 5), (0, 4), (7, 3)] {
        let small = |arg: Arg| {
            let Arg::Array(mut a) = arg else { unreachable!() };
            for code in a.bytes.chunks_exact_mut(8) {
                let v = f64::from_le_bytes(code.try_into().unwrap()) / 12.0;
                code.copy_from_slice(&v.to_le_bytes());
            }
            Arg::Array(a)
        };
        let re = small(array(&[w], DType::F64, Layout::Rows, 1));
        let im = small(array(&[h], DType::F64, Layout::Rows, 2));
        let count = array(&[h, w], DType::I64, Layout::Rows, 3);
        kernel.check(&[re, im, scalar(40i64), count], w * h + 3, 64);
    }
}

pub fn rows_of_different_length_are_summed(case: &Case) {
    let kernel = case.kernel("func @spmv(%starts: view<[p], i32, read>, %columns: view<[z], i32, read>, %values: view<[z], f32, read>, %x: view<[n], f32, read>, %y: view<[m], f32, write>) {kind = lane} {
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
         }");
    for m in [1, 16, 17, 160] {
        let starts: Vec<i32> = (0..=m).map(|i| (i * i * 5 % 9 + 4 * i) as i32).collect();
        let z = *starts.iter().max().unwrap() as i64;
        let columns: Vec<i32> = (0..z).map(|i| (i * 17 % 40) as i32 - 2).collect();
        let values = array(&[z], DType::F32, Layout::Rows, 1);
        let x = array(&[35], DType::F32, Layout::Rows, 2);
        let y = array(&[m], DType::F32, Layout::Rows, 3);
        kernel.check(&[ints(&starts), ints(&columns), values, x, y], m, 32);
    }
}

/// Branches in branches in loops, with values that only some lanes change.
pub const TANGLE: &str = "
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
        LOOP
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

pub const INNER: &str = "%p = tile.for %0, %m, %1 init(%h) : f32 do (%q: i64, %r: f32) {
          %w = tile.cast %q : f32
          %u = tile.add %r, %w : f32
          tile.yield %u
        }";

pub fn nested_branches_and_loops_merge_as_the_interpreter_merges(case: &Case) {
    // Without the loop of varying trip count a GPU thread may have several lanes.
    for inner in [INNER, "%p = tile.neg %h : f32"] {
        let kernel = case.kernel(&TANGLE.replace("LOOP", inner));
        for n in SIZES {
            for k in [0, 1, 4] {
                let x = array(&[n], DType::F32, Layout::Rows, n as u64);
                let y = array(&[n], DType::F32, Layout::Rows, 2);
                let z = array(&[n], DType::I64, Layout::Rows, 3);
                let args = [x, y, z, scalar(k)];
                kernel.check(&args, n, 64);
            }
        }
    }
}

pub fn values_that_a_loop_swaps_are_all_read_before_any_is_written(case: &Case) {
    let kernel = case.kernel("func @f(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %w = tile.neg %v : f32
           %z = tile.const {value = 0.5} : f32
           %a, %b, %c = tile.for %0, %k, %1 init(%v, %w, %z) : f32, f32, f32 do (%j: i64, %p: f32, %q: f32, %r: f32) {
             %s = tile.add %p, %r : f32
             tile.yield %q, %s, %p
           }
           %d, %e = tile.while init(%0, %a) : i64, f32 do (%j1: i64, %p1: f32) {
             %go = tile.lt %j1, %k : bool
             tile.yield %go
           } do (%j2: i64, %p2: f32) {
             %n = tile.add %j2, %1 : i64
             %m = tile.mul %p2, %b : f32
             tile.yield %n, %m
           }
           %s1 = tile.add %e, %b : f32
           %s2 = tile.sub %s1, %c : f32
           tile.store %y, %s2 at(%i) {extent = [0]}
           tile.return
         }");
    for k in 0..5 {
        let [x, y] = [1, 2].map(|seed| array(&[300], DType::F32, Layout::Rows, seed));
        kernel.check(&[x, y, scalar(k as i64)], 300, 64);
    }
}

pub fn conditions_that_hold_for_some_lanes_of_a_thread(case: &Case) {
    let kernel = case.kernel("func @f(%x: view<[n], f32, read>, %w: view<[m], f32, read>, %y: view<[n], f32, read_write>, %a: i64, %b: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %zero = tile.const {value = 0.0} : f32
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %pos = tile.gt %v, %zero : bool
           tile.if %pos do {
             %u = tile.load %w at(%i) {extent = [0]} : f32
             %s = tile.add %u, %v : f32
             tile.store %y, %s at(%i) {extent = [0]}
             tile.yield
           } do {
             tile.accumulate %y, %v at(%i) {op = sum, extent = [0]}
             tile.yield
           }
           %first = tile.eq %i, %a : bool
           %other = tile.ne %i, %b : bool
           %low = tile.lt %i, %a : bool
           %high = tile.ge %i, %b : bool
           %in = tile.and %low, %high : bool
           %out = tile.or %low, %high : bool
           %n1 = tile.not %in : bool
           tile.if %first do {
             tile.store %y, %zero at(%i) {extent = [0]}
             tile.yield
           } do {
             tile.yield
           }
           %r = tile.if %in : f32 do {
             %t = tile.mul %v, %v : f32
             tile.yield %t
           } do {
             %t2 = tile.neg %v : f32
             tile.yield %t2
           }
           tile.if %out do {
             tile.accumulate %y, %r at(%i) {op = max, extent = [0]}
             tile.yield
           } do {
             tile.accumulate %y, %r at(%i) {op = min, extent = [0]}
             tile.yield
           }
           tile.if %other do {
             tile.yield
           } do {
             tile.accumulate %y, %r at(%i) {op = prod, extent = [0]}
             tile.yield
           }
           tile.if %n1 do {
             tile.accumulate %y, %v at(%i) {op = sum, extent = [0]}
             tile.yield
           } do {
             tile.yield
           }
           tile.return
         }");
    for (n, m) in [(300, 300), (600, 500), (9, 9), (0, 0)] {
        for (a, b) in [(0, 0), (100, 13), (1, 255), (i64::MAX, i64::MIN), (-1, 600)] {
            let x = array(&[n], DType::F32, Layout::Rows, 1);
            let w = array(&[m], DType::F32, Layout::Rows, 2);
            let y = array(&[n], DType::F32, Layout::Rows, 3);
            let args = [x, w, y, scalar(a), scalar(b)];
            kernel.check(&args, n, 64);
        }
    }
}

pub fn loops_end_at_the_ends_of_the_number_range(case: &Case) {
    let kernel = case.kernel("func @f(%lo: view<[n], i64, read>, %hi: view<[n], i64, read>, %step: view<[n], i64, read>, %y: view<[n], i64, write>, %top: i64, %by: i64) {kind = lane} {
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
         }");
    const FAR: i64 = i64::MAX - 10;
    let column = |f: &dyn Fn(i64) -> i64| longs(&(0..20).map(f).collect::<Vec<_>>());
    let y = array(&[20], DType::I64, Layout::Rows, 4);
    type Column = &'static dyn Fn(i64) -> i64;
    let cases: [(Column, Column, Column); 3] = [
        (&|i| i, &|i| 3 * i - 20, &|i| i % 3 + 1),
        (&|i| FAR + i % 11, &|_| i64::MAX, &|i| i + 1),
        (&|i| i64::MIN + i, &|i| i64::MAX - i, &|_| i64::MAX / 2),
    ];
    for (lo, hi, step) in cases {
        let args =
            [column(lo), column(hi), column(step), y.clone(), scalar(30i64), scalar(i64::MAX / 3)];
        kernel.check(&args, 20, 16);
    }
    let steps = [column(&|_| 0), column(&|_| 5), column(&|i| 7 - i)];
    let [lo, hi, step] = steps;
    kernel.check(&[lo, hi, step, y, scalar(30i64), scalar(1i64)], 7, 16);
}

pub fn positions_that_loops_move_stay_inside(case: &Case) {
    let text = "func @conv(%x: view<[n], f32, read>, %w: view<[k], f32, read>, %m: view<[k, n], f32, read>, %y: view<[n], f32, write>, %o: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %zero = tile.const {value = 0.0} : f32
           %K = tile.dim {name = k} : i64
           %s = tile.for %0, %K, %1 init(%zero) : f32 do (%j: i64, %a: f32) {
             %p = tile.add %i, %j : i64
             %q = tile.sub %p, %o : i64
             %b = tile.load %x at(%q) {extent = [0]} : f32
             %row = tile.add %j, %o : i64
             %f = tile.load %m at(%row, %i) {extent = [0, 0]} : f32
             %f2 = tile.load %m at(%j, %i) {extent = [0, 0]} : f32
             %c = tile.load %w at(%j) {extent = [0]} : f32
             %d = tile.mul %b, %c : f32
             %e = tile.add %a, %d : f32
             %g = tile.add %e, %f : f32
             %h = tile.add %g, %f2 : f32
             MORE
             tile.yield %h
           }
           tile.store %y, %s at(%i) {extent = [0]}
           tile.return
         }";
    // Positions that go backwards take a path of their own.
    let backwards = "%j2 = tile.add %j, %j : i64
             %r = tile.sub %i, %j2 : i64
             %u = tile.load %x at(%r) {extent = [0]} : f32
             %h2 = tile.add %h, %u : f32
             tile.yield %h2";
    let kernels =
        [text.replace("MORE", ""), text.replace("MORE\n             tile.yield %h", backwards)];
    for kernel in kernels.iter().map(|text| case.kernel(text)) {
        for n in [1, 16, 300] {
            for k in [0, 1, 5, 40] {
                for o in [0, 2, -60, 1 << 50, i64::MIN] {
                    let [x, y] = arrays(&[n], DType::F32, Layout::Rows);
                    let w = array(&[k], DType::F32, Layout::Rows, 3);
                    let m = array(&[k, n], DType::F32, Layout::Rows, 4);
                    kernel.check(&[x, w, m, y, scalar(o)], n, 64);
                }
            }
        }
    }
}

pub fn functions_and_random_words_of_each_lane(case: &Case) {
    let kernel = case.kernel("func @f(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %r: view<[n], u32, write>, %seed: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %a = tile.exp %v : f32
           %b = tile.sin %v : f32
           %c = tile.div %a, %b : f32
           %b16 = tile.cast %c : bf16
           %d = tile.cast %b16 : f32
           tile.store %y, %d at(%i) {extent = [0]}
           %w = tile.philox %seed, %i {word = 2} : u32
           %bits = tile.bitcast %v : u32
           %e = tile.xor %w, %bits : u32
           tile.store %r, %e at(%i) {extent = [0]}
           tile.return
         }");
    let x = array(&[500], DType::F32, Layout::Rows, 1);
    let y = array(&[500], DType::F32, Layout::Rows, 2);
    let r = array(&[500], DType::U32, Layout::Rows, 3);
    kernel.check_strict(&[x, y, r, scalar(77i64)], 500, 64);
}

pub fn an_assertion_that_fails_stops_the_launch(case: &Case) {
    for barrier in ["", "tile.barrier"] {
        let kernel = case.kernel(&format!(
                "func @check(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %low: f32) {{kind = lane}} {{
                   %i = tile.linear_id : i64
                   %v = tile.load %x at(%i) {{extent = [0]}} : f32
                   %c = tile.ge %v, %low : bool
                   tile.assert %c {{text = \"too low\"}}
                   {barrier}
                   tile.store %y, %v at(%i) {{extent = [0]}}
                   tile.return
                 }}"
            ));
        let x = floats(&(0..100).map(|i| 100.0 - i as f32).collect::<Vec<_>>());
        let y = array(&[100], DType::F32, Layout::Rows, 2);
        for low in [-3.0f32, 1.5, 30.0, 99.5] {
            let args = [x.clone(), y.clone(), scalar(low)];
            let outcome = kernel.compare(&args, 100, 24, |_| true);
            assert_eq!(outcome.is_ok(), low < 1.0);
            if low > 1.0 {
                kernel.stops(&args, 100, 24, "too low");
            }
        }
    }
}

/// The first lane is stopped before it comes to a loop and a branch on which all lanes agree, but
/// whose conditions vary in form.
pub fn a_stopped_lane_decides_nothing(case: &Case) {
    let kernel = case.kernel(
        "func @f(%x: view<[n], f32, read>, %low: f32, %y: view<[n], i64, write>) {kind = lane} {
           %i = tile.linear_id : i64
           %l = tile.local_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %2 = tile.const {value = 2} : i64
           %zero = tile.mul %l, %0 : i64
           %count = tile.add %zero, %2 : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %c = tile.ge %v, %low : bool
           tile.assert %c
           %t = tile.for %0, %count, %1 init(%0) : i64 do (%k: i64, %a: i64) {
             tile.barrier
             %b = tile.add %a, %k : i64
             tile.yield %b
           }
           %some = tile.lt %zero, %1 : bool
           tile.if %some do {
             tile.barrier
             tile.yield
           } do {
             tile.yield
           }
           tile.store %y, %t at(%i) {extent = [0]}
           tile.return
         }",
    );
    for (n, lanes) in [(20i64, 20), (70, 40)] {
        let x = floats(&(0..n).map(|i| i as f32).collect::<Vec<_>>());
        let y = array(&[n], DType::I64, Layout::Rows, 3);
        kernel.check(&[x.clone(), scalar(0.0f32), y.clone()], n, lanes);
        kernel.stops(&[x, scalar(0.5f32), y], n, lanes, "expected the assertion to hold");
    }
}

/// Lanes that wait in a loop for a stopped lane end too.
pub fn nobody_waits_for_a_lane_that_an_assertion_stopped(case: &Case) {
    let kernel = case.kernel(
        "func @f(%x: view<[n], f32, read>, %low: f32) {kind = lane} {
           %i = tile.linear_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %one = tile.const {value = 1} : i32
           %size = tile.group_size : i64
           %all = tile.cast %size : i32
           %b = tile.buf_alloc : buf<1xi32>
           %l = tile.local_id : i64
           %none = tile.const {value = 0} : i32
           %first = tile.eq %l, %0 : bool
           tile.if %first do {
             tile.store %b, %none at(%0) {extent = [0]}
             tile.yield
           } do {
             tile.yield
           }
           tile.barrier
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %c = tile.ge %v, %low : bool
           tile.assert %c
           %old = tile.atomic %b, %one at(%0) {op = add} : i32
           tile.barrier
           %last = tile.while init(%0) : i64 do (%k: i64) {
             %done = tile.load %b at(%0) {extent = [0]} : i32
             %go = tile.lt %done, %all : bool
             tile.yield %go
           } do (%k2: i64) {
             tile.barrier
             %k3 = tile.add %k2, %1 : i64
             tile.yield %k3
           }
           tile.return
         }",
    );
    let x = floats(&(0..80).map(|i| i as f32).collect::<Vec<_>>());
    kernel.check(&[x.clone(), scalar(0.0f32)], 80, 40);
    kernel.stops(&[x, scalar(3.0f32)], 80, 40, "expected the assertion to hold");
}

pub fn a_loop_that_does_not_step_forwards_is_an_error(case: &Case) {
    let text = |step: &str| {
        format!(
            "func @f(%y: view<[n], i64, write>, %k: i64) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %0 = tile.const {{value = 0}} : i64
               %9 = tile.const {{value = 9}} : i64
               tile.for %0, %9, {step} do (%j: i64) {{
                 tile.store %y, %j at(%i) {{extent = [0]}}
                 tile.yield
               }}
               tile.return
             }}"
        )
    };
    let y = array(&[4], DType::I64, Layout::Rows, 1);
    for (step, k, good) in [("%k", 1, true), ("%k", 0, false), ("%i", 1, false)] {
        let kernel = case.kernel(&text(step));
        let args = [y.clone(), scalar(k as i64)];
        match good {
            true => drop(kernel.check(&args, 4, 4)),
            false => kernel.stops(&args, 4, 4, "expected a loop step above 0"),
        }
    }
}
