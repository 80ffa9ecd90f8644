use crate::brute::{Random, seed};
use tessera_mesh::{Mesh, Placement, Spec};

#[test]
fn specs_print_and_parse() {
    let texts = [
        "[]",
        "[{}, {tp}]",
        "[{dp}, {}, {tp, pp}]",
        "[{tp cyclic}]",
        "[{dp, tp cyclic(4)}] sum{ep}",
        "[row {dp}, -1 {tp}]",
        "[heads {tp}] max{dp, ep} even @2",
        "[{dp}] even",
        "[{dp}] @7",
    ];
    for text in texts {
        let spec = Spec::parse(text).unwrap();
        assert_eq!(spec.to_string(), text);
    }
    let mut random = Random(seed());
    for _ in 0..500 {
        let mesh = random.mesh();
        let ndim = random.below(4) as usize;
        let spec = random.spec(&mesh, ndim);
        let again = Spec::parse(&spec.to_string()).unwrap();
        assert_eq!(again, spec, "{spec}");
        let bind = |s: &Spec| Placement::new(&mesh, s, ndim, &[]).unwrap();
        assert_eq!(bind(&again), bind(&spec), "{spec}");
        assert_eq!(bind(&bind(&spec).spec(&mesh)), bind(&spec), "{spec}");
    }
}

#[test]
fn specs_are_equal_if_they_mean_the_same() {
    let spec = |text: &str| Spec::parse(text).unwrap();
    for (a, b) in [
        ("[row {dp}, col {tp}]", "[-1 {tp}, -2 {dp}]"),
        ("[batch {dp}]", "[{dp}, {}]"),
        ("[{dp}] sum{ep, tp} @3", "[{dp}] sum{tp, ep} even"),
        ("[{dp}] sum{}", "[{dp}]"),
        ("[{cyclic, tp}]", "[0 {cyclic, tp}]"),
    ] {
        assert_eq!(spec(a), spec(b), "{a} {b}");
    }
    for (a, b) in [
        ("[{dp}]", "[{tp}]"),
        ("[{dp, tp}]", "[{tp, dp}]"),
        ("[{dp}]", "[{dp cyclic}]"),
        ("[] sum{dp}", "[] max{dp}"),
        ("[{dp}]", "[-1 {dp}]"),
    ] {
        assert_ne!(spec(a), spec(b), "{a} {b}");
    }
}

#[test]
fn texts_that_are_no_specs() {
    for text in [
        "",
        "[",
        "[{dp]",
        "[{dp}",
        "[{dp cyclic(0)}]",
        "[{dp cyclic(]",
        "[{dp}] median{tp}",
        "[{dp}] @x",
        "[{dp}] @99999999999",
        "[{dp}] rest",
        "[0 1]",
    ] {
        let found = Spec::parse(text).expect_err(text);
        assert!(
            found.message.starts_with("expected ") && found.help.is_some(),
            "{}",
            found.message
        );
    }
}

#[test]
fn specs_that_do_not_fit() {
    let mesh = Mesh::parse("{axes = [dp, tp], extents = [4, 9]}").unwrap();
    let names = ["b".to_owned(), "h".to_owned()];
    let refused = |text: &str, ndim: usize| {
        Placement::new(&mesh, &Spec::parse(text).unwrap(), ndim, &names[..ndim.min(2)]).unwrap_err()
    };
    for (text, ndim, message) in [
        ("[{ep}]", 2, "expected an axis of the mesh (dp, tp), got `ep`"),
        ("[{dp}, {dp}]", 2, "the mesh axis `dp` is used twice in [{dp}, {dp}]"),
        ("[{dp}] sum{dp}", 2, "the mesh axis `dp` is used twice in [{dp}] sum{dp}"),
        ("[row {dp}, 0 {tp}]", 2, "dim 0 is split twice in [row {dp}, 0 {tp}]"),
        ("[{}, {}, {tp}]", 2, "expected a dim of an array with 2 dims, got 2"),
        ("[row {dp}]", 1, "expected a dim of an array with 1 dim, got row"),
        ("[heads {tp}]", 2, "expected a dim of the array, got \"heads\""),
    ] {
        let found = refused(text, ndim);
        assert_eq!(found.message, message);
        assert!(found.help.is_some() && found.code.name() == "E_PLACEMENT");
    }
    // The name of a dim is that of the array first.
    let placed =
        Placement::new(&mesh, &Spec::parse("[h {tp}, b {dp}]").unwrap(), 2, &names).unwrap();
    assert_eq!(placed.spec(&mesh).to_string(), "[{dp}, {tp}]");
}
