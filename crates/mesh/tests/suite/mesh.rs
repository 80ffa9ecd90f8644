use tessera_mesh::Mesh;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn devices(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("cuda:{i}")).collect()
}

#[test]
fn ranks_are_row_major() {
    let mesh = Mesh::new(&names(&["dp", "tp", "pp"]), &[4, 9, 2], devices(72)).unwrap();
    assert_eq!((mesh.size(), mesh.coords(71), mesh.rank(&[3, 8, 1])), (72, vec![3, 8, 1], 71));
    for rank in 0..72 {
        let [dp, tp, pp] = mesh.coords(rank)[..] else { panic!("three axes") };
        assert_eq!(rank, (dp * 9 + tp) * 2 + pp);
        assert_eq!(mesh.rank(&[dp, tp, pp]), rank);
    }
    assert_eq!(mesh.groups(&[1])[1], (0..9).map(|tp| tp * 2 + 1).collect::<Vec<_>>());
    assert_eq!(mesh.groups(&[1]).len(), 8);
    // Several axes, in the order given.
    assert_eq!(mesh.groups(&[2, 0])[0], [0, 18, 36, 54, 1, 19, 37, 55]);
}

#[test]
fn parts_of_a_mesh_remember_the_whole() {
    let mesh = Mesh::new(&names(&["dp", "tp", "pp"]), &[2, 3, 2], devices(12)).unwrap();
    let part = mesh.at(&[("pp".to_owned(), 1)]).unwrap();
    assert_eq!(
        (part.axes(), part.extents(), part.whole() == mesh),
        (vec!["dp", "tp"], vec![2, 3], true)
    );
    assert_eq!(part.devices(), ["cuda:1", "cuda:3", "cuda:5", "cuda:7", "cuda:9", "cuda:11"]);
    assert_eq!((0..6).map(|r| part.whole_rank(r)).collect::<Vec<_>>(), [1, 3, 5, 7, 9, 11]);
    let one = part.at(&[("dp".to_owned(), 1), ("tp".to_owned(), 2)]).unwrap();
    assert_eq!((one.size(), one.devices(), one.whole_rank(0)), (1, vec!["cuda:11"], 11));
    assert_ne!(mesh.at(&[("pp".to_owned(), 0)]).unwrap(), part);
}

#[test]
fn meshes_print_and_parse() {
    for text in [
        "{axes = [dp, tp], extents = [4, 9]}",
        "{axes = [], extents = []}",
        "{axes = [dp, tp, pp], extents = [4, 9, 2]} at {tp = 3, pp = 1}",
    ] {
        assert_eq!(Mesh::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn refusals_have_the_arithmetic() {
    let refused = |axes: &[&str], extents: &[u64], n: usize| {
        Mesh::new(&names(axes), extents, devices(n)).unwrap_err().message
    };
    assert_eq!(
        refused(&["dp", "tp", "pp"], &[4, 9, 2], 70),
        "expected 4 × 9 × 2 = 72 devices, got 70 devices"
    );
    assert_eq!(refused(&["dp"], &[4], 1), "expected 4 devices, got 1 device");
    assert_eq!(
        refused(&["dp", "tp"], &[4], 4),
        "expected one extent for each axis, got 2 axes and 1 extents"
    );
    assert_eq!(refused(&["dp", "dp"], &[2, 2], 4), "the axis `dp` is named twice");
    assert_eq!(
        refused(&["dp"], &[0], 0),
        "expected an extent of at least 1 for the axis `dp`, got 0"
    );
    assert_eq!(
        refused(&["d p"], &[1], 1),
        "expected a name of letters and digits for axis 0, got \"d p\""
    );
    assert!(
        refused(&["a", "b"], &[u64::MAX, 2], 1)
            .starts_with("expected at most 1048576 ranks, got 18446744073709551615 × 2")
    );
    let mesh = Mesh::parse("{axes = [dp, tp], extents = [4, 9]}").unwrap();
    assert_eq!(
        mesh.axis("pp").unwrap_err().message,
        "expected an axis of the mesh (dp, tp), got `pp`"
    );
    assert_eq!(
        mesh.at(&[("tp".to_owned(), 9)]).unwrap_err().message,
        "expected a coordinate of `tp` from 0 to 8, got 9"
    );
    let part = mesh.at(&[("tp".to_owned(), 0)]).unwrap();
    assert_eq!(
        part.axis("tp").unwrap_err().message,
        "`tp` is fixed in this part of the mesh; it has the axes (dp)"
    );
    for text in [
        "",
        "{axes = [dp], extents = [4}",
        "{axes = [dp], extents = [4]} of",
        "{axes = [dp], extents = [99999999999999999999]}",
    ] {
        assert!(Mesh::parse(text).is_err(), "{text}");
    }
}
