use crate::brute::{Random, elements, seed};
use std::collections::BTreeMap;
use tessera_mesh::{Exchange, IndexSet, Kind, Mesh, Move, Placed, Spec, collectives};

fn places(pieces: &[tessera_mesh::Piece]) -> Vec<(u64, u64)> {
    pieces
        .iter()
        .flat_map(|p| (0..p.count).map(move |k| (p.from + k * p.from_step, p.to + k * p.to_step)))
        .collect()
}

/// The pairs of places that a move names, in the blocks of sender and receiver.
fn pairs(m: &Move) -> Vec<(Vec<u64>, Vec<u64>)> {
    m.dims.iter().fold(vec![(Vec::new(), Vec::new())], |all, pieces| {
        let at = places(pieces);
        all.into_iter()
            .flat_map(|(f, t)| {
                at.iter()
                    .map(move |(a, b)| {
                        ([f.clone(), vec![*a]].concat(), [t.clone(), vec![*b]].concat())
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    })
}

/// The element of the array at a place of a block.
fn element(index: &[IndexSet], place: &[u64]) -> Vec<u64> {
    index.iter().zip(place).map(|(set, at)| set.iter().nth(*at as usize).unwrap()).collect()
}

#[test]
fn every_element_arrives_once_from_a_rank_that_has_it() {
    let mut random = Random(seed());
    for case in 0..1000 {
        let from = random.placed();
        let spec = random.spec(from.mesh(), from.shape().len());
        let to = Placed::new(from.mesh().clone(), &spec, from.shape(), &[]).unwrap();
        let once = random.below(2) == 0;
        let plan = Exchange::new(&from, &to, once).unwrap();
        let title = format!(
            "case {case}: {} to {spec} on {}\n{plan}",
            from.placement().spec(from.mesh()),
            from.mesh()
        );
        let mut arrived: BTreeMap<(u64, u64, Vec<u64>), u64> = BTreeMap::new();
        for m in &plan.moves {
            assert_eq!(from.contribution(m.from), m.contribution, "{title}");
            let (source, target) = (from.index(m.from), to.index(m.to));
            for (f, t) in pairs(m) {
                let moved = element(&source, &f);
                assert_eq!(moved, element(&target, &t), "{title}");
                *arrived.entry((m.to, m.contribution, moved)).or_default() += 1;
            }
        }
        let mut expected = BTreeMap::new();
        for block in to.blocks() {
            let receivers = if once { &block.ranks[..1] } else { &block.ranks[..] };
            let contributions = match plan.kind {
                Kind::Kept => block.contribution..block.contribution + 1,
                Kind::Combined(_) | Kind::Values if block.contribution > 0 => 0..0,
                Kind::Combined(_) | Kind::Values => 0..from.contributions(),
            };
            for (rank, c) in
                receivers.iter().flat_map(|r| contributions.clone().map(move |c| (*r, c)))
            {
                let inside =
                    |e: &Vec<u64>| block.index.iter().zip(e).all(|(set, i)| set.contains(*i));
                elements(to.shape()).into_iter().filter(inside).for_each(|e| {
                    expected.insert((rank, c, e), 1);
                });
            }
        }
        assert_eq!(arrived, expected, "{title}");
    }
}

fn plan(mesh: &str, shape: &[u64], from: &str, to: &str) -> (String, String) {
    let mesh = Mesh::parse(mesh).unwrap();
    let placed =
        |text: &str| Placed::new(mesh.clone(), &Spec::parse(text).unwrap(), shape, &[]).unwrap();
    let (from, to) = (placed(from), placed(to));
    let named: Vec<String> = collectives(&mesh, &from, &to)
        .iter()
        .map(|c| format!("{} {}", c.kind, c.axes.join(",")))
        .collect();
    (Exchange::new(&from, &to, true).unwrap().to_string(), named.join("; "))
}

#[test]
fn plans_as_text() {
    let line = "{axes = [tp], extents = [2]}";
    let (moves, named) = plan(line, &[3, 4], "[{tp}]", "[{}, {tp}]");
    assert_eq!(named, "all_to_all tp");
    assert_eq!(
        moves,
        "values\n0 -> 0: [0:2, 0:2] to [0:2, 0:2]\n1 -> 0: [0:1, 0:2] to [2:3, 0:2]\n0 -> 1: [0:2, 2:4] to [0:2, 0:2]\n1 -> 1: [0:1, 2:4] to [2:3, 0:2]"
    );
    let (moves, named) = plan(line, &[5], "[{tp cyclic}]", "[]");
    assert_eq!(named, "all_gather tp");
    assert_eq!(moves, "values\n0 -> 0: [0:3] to [0:5:2]\n1 -> 0: [0:2] to [1:4:2]");
    let (moves, named) = plan(line, &[5], "[] sum{tp}", "[{tp}]");
    assert_eq!(named, "reduce_scatter tp");
    assert_eq!(
        moves,
        "sum of contributions\n0 -> 0 (0): [0:3] to [0:3]\n1 -> 0 (1): [0:3] to [0:3]\n0 -> 1 (0): [3:5] to [0:2]\n1 -> 1 (1): [3:5] to [0:2]"
    );
    let (moves, named) = plan(line, &[5], "[]", "[] max{tp}");
    assert_eq!((moves.as_str(), named.as_str()), ("values\n0 -> 0: [0:5] to [0:5]", ""));
    let grid = "{axes = [dp, tp], extents = [2, 2]}";
    for (from, to, expected) in [
        ("[{dp}, {tp}]", "[]", "all_gather dp,tp"),
        ("[{dp}] sum{tp}", "[]", "all_gather dp; all_reduce tp"),
        ("[{dp}] sum{tp}", "[{}, {dp}] sum{tp}", "all_to_all dp"),
        ("[{dp}]", "[{dp cyclic}]", "exchange dp"),
        ("[]", "[{dp}, {tp}]", ""),
        ("[] sum{dp}", "[] max{dp}", "all_reduce dp"),
        ("[{dp}]", "[{dp, tp}]", "exchange dp"),
    ] {
        assert_eq!(plan(grid, &[6, 5], from, to).1, expected, "{from} {to}");
    }
}

#[test]
fn shapes_must_agree() {
    let mesh = Mesh::parse("{axes = [dp], extents = [2]}").unwrap();
    let placed = |shape: &[u64]| Placed::new(mesh.clone(), &Spec::default(), shape, &[]).unwrap();
    let error = Exchange::new(&placed(&[2]), &placed(&[3]), false).unwrap_err();
    assert_eq!(
        (error.code.name(), error.message.as_str()),
        ("E_SHAPE_MISMATCH", "expected placements of one shape, got [2] and [3]")
    );
}
