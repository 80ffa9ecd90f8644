//! The registers that tiles take at the widest point, and where that is. A thread holds 32
//! registers of every tile here, unless its name says otherwise.

use tessera_staged::ops::roles::role_info;
use tessera_staged::{StagedFunc, parse, pressure};

const HELD: &str = "tile<32x32xf32, #[reg 1,0 2,0 4,0 8,0 16,0; lane 0,1 0,2 0,4 0,8 0,16]>";
const ROWS: &str = "tile<32xf32, #[reg 1 2 4 8 16; lane 0 0 0 0 0]>";

fn func(body: &str) -> StagedFunc {
    let text = format!(
        "func @f(%v: view<[m, n], f32, read_write>, %n: i64) {{kind = group, threads = 32}} {{
  %zero = staged.const {{value = 0}} : i64
  %one = staged.const {{value = 1}} : i64
{body}  staged.return
}}"
    );
    let text = text.replace("HELD", HELD).replace("ROWS", ROWS);
    let text = text.replace("LOAD", "staged.load %v at(%zero, %zero) {extent = [32, 32]} : HELD");
    let text = text.replace("HELD", HELD);
    let func = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e.render()));
    tessera_ir::verify(&func).unwrap_or_else(|e| panic!("{}\n{text}", e.render()));
    func
}

/// Registers, and the op where they are held.
fn widest(body: &str) -> (u64, String) {
    let func = func(body);
    let [one] = pressure(&func)[..] else { panic!("{func}") };
    (one.registers, tessera_ir::Opcode::mnemonic(func.ops[one.at].code).to_string())
}

const STORE: &str = "staged.store %v, %r at(%zero, %zero) {extent = [32, 32]}\n";

#[test]
fn elements_pass_through_arithmetic_one_by_one() {
    let chain = format!(
        "  %a = LOAD\n  %b = staged.exp %a : HELD\n  %c = staged.mul %b, %b : HELD\n  %r = staged.add %c, %a : HELD\n  {STORE}"
    );
    assert_eq!(widest(&chain), (32, "store".into()));
}

#[test]
fn a_reduction_takes_elements_as_they_come_and_later_users_need_all_of_them() {
    let once = "  %a = LOAD\n  %b = staged.exp %a : HELD\n  %s = staged.reduce %b {op = sum, axis = 1} : ROWS\n";
    assert_eq!(widest(once).0, 32);
    let again = format!("{once}  %r = staged.mul %a, %b : HELD\n  {STORE}");
    assert_eq!(widest(&again), (32 + 32, "mul".into()));
}

#[test]
fn what_a_loop_reads_again_is_alive_in_all_of_it() {
    let body = format!(
        "  %w = LOAD
  %r = staged.for %zero, %n, %one init(%w) : HELD do (%i: i64, %acc: HELD) {{
    %x = LOAD
    %y = staged.add %x, %w : HELD
    %m = LOAD
    %z = staged.mul %y, %m : HELD
    %sum = staged.add %acc, %z : HELD
    staged.yield %sum
  }}
  {STORE}"
    );
    // The accumulator, `w`, `m`, and `y`, which is computed before `m` is loaded.
    assert_eq!(widest(&body), (4 * 32, "mul".into()));
}

#[test]
fn an_accumulation_holds_what_is_in_memory_too() {
    let body =
        "  %a = LOAD\n  staged.accumulate %v, %a at(%zero, %zero) {op = sum, extent = [32, 32]}\n";
    assert_eq!(widest(body), (64, "accumulate".into()));
}

#[test]
fn roles_are_counted_apart() {
    let func = func(
        "  staged.warp_specialize do {
    staged.warp_role {name = consumer, warps = 1, regs = 240} do {
      %a = LOAD
      %b = LOAD
      %c = staged.add %a, %b : HELD
      staged.store %v, %c at(%zero, %zero) {extent = [32, 32]}
      staged.yield
    }
    staged.yield
  }
",
    );
    let found = pressure(&func);
    let of = |w: &tessera_staged::Widest| w.role.map(|r| role_info(&func, r).name);
    assert_eq!(
        found.iter().map(|w| (of(w), w.registers)).collect::<Vec<_>>(),
        [(Some("consumer".into()), 64)]
    );
}
