//! Plans that are read back.

use tessera_ir::Attr;
use tessera_schedule::{kept, pinned};

fn plan(launches: &str) -> String {
    format!(
        "module @k : schedule {{version = 1}}\n\nfunc @k(%x: view<[n], f32, read>) {{\n{launches}  sched.return\n}}\n"
    )
}

#[test]
fn what_was_chosen_is_put_over_what_was_given() {
    let text = plan(
        "  sched.launch %x {kernel = @k, grid = [n], backend = ptx, config = {BM = 64, num_warps = 0}, chosen = {num_warps = 8, off = [mma_in_flight]}}\n",
    );
    let (kernel, found) = pinned(&text, "plan").unwrap();
    assert_eq!(kernel, "k");
    assert_eq!(Attr::Dict(found).to_string(), "{BM = 64, num_warps = 8, off = [mma_in_flight]}");
}

#[test]
fn parts_of_nothing_and_of_many_parts_are_read() {
    let part = "sched.view %x : view<[n], f32, read>\n";
    let nothing = plan(&format!(
        "  %m = {}  sched.launch %m {{kernel = @k, grid = [n], backend = ptx}}\n",
        part.replace(" %x", "")
    ));
    let reported = kept(&nothing, "plan").unwrap_err();
    assert!(reported.iter().any(|e| e.message.contains("operand")), "{reported}");
    let mut many = format!("  %v0 = {part}");
    for i in 1..5_000 {
        many += &format!("  %v{i} = {}", part.replace("%x", &format!("%v{}", i - 1)));
    }
    many += "  sched.launch %v4999 {kernel = @k, grid = [8], backend = ptx}\n";
    if let Err(reported) = kept(&plan(&many).replace("[n], f32", "[8], f32"), "plan") {
        panic!("{}", reported.iter().next().map_or("", |e| &e.message));
    }
}

#[test]
fn a_plan_of_one_launch_is_requested() {
    let one = "  sched.launch %x {kernel = @k, grid = [n], backend = ptx}\n";
    assert!(pinned(&plan(one), "plan").is_ok());
    for wrong in [String::new(), one.repeat(2)] {
        let errors = pinned(&plan(&wrong), "plan").unwrap_err();
        assert!(errors.errors().next().unwrap().message.contains("expected a plan of one launch"));
    }
    assert!(pinned("nothing", "plan").is_err());
}
