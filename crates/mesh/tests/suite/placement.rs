use crate::brute::{Random, elements, has, seed};
use std::collections::BTreeSet;
use tessera_mesh::{IndexSet, Mesh, Placed, Spec};

fn placed(mesh: &str, spec: &str, shape: &[u64]) -> Placed {
    Placed::new(Mesh::parse(mesh).unwrap(), &Spec::parse(spec).unwrap(), shape, &[]).unwrap()
}

const NVL72: &str = "{axes = [dp, tp, pp], extents = [4, 9, 2]}";

#[test]
fn ranks_have_what_a_formula_for_each_element_says() {
    let mut random = Random(seed());
    for case in 0..400 {
        let placed = random.placed();
        let spec = placed.placement().spec(placed.mesh());
        for rank in 0..placed.mesh().size() {
            let index = placed.index(rank);
            for element in elements(placed.shape()) {
                let inside = index.iter().zip(&element).all(|(set, i)| set.contains(*i));
                assert_eq!(
                    inside,
                    has(&placed, rank, &element),
                    "case {case}: {spec} on {}: {element:?} on rank {rank}",
                    placed.mesh()
                );
            }
        }
        // Blocks are what ranks have, and each element is in one block of each contribution.
        let mut ranks = BTreeSet::new();
        let mut volume = 0;
        for block in placed.blocks() {
            assert!(block.ranks.is_sorted());
            for rank in &block.ranks {
                assert!(ranks.insert(*rank));
                assert_eq!(
                    (&placed.index(*rank), placed.contribution(*rank)),
                    (&block.index, block.contribution)
                );
            }
            volume += block.index.iter().map(IndexSet::len).product::<u64>();
        }
        assert_eq!(ranks.len() as u64, placed.mesh().size());
        assert_eq!(volume, placed.contributions() * placed.shape().iter().product::<u64>());
    }
}

#[test]
fn parts_together_are_the_array() {
    let mut random = Random(seed() ^ 1);
    for _ in 0..300 {
        let placed = random.placed();
        let axes: Vec<String> = placed.mesh().axes().into_iter().map(str::to_owned).collect();
        let blocks = placed.blocks();
        let parts = placed.parts(&axes).unwrap();
        assert_eq!(parts.len() as u64, placed.mesh().size());
        for (rank, part) in parts.iter().enumerate() {
            assert_eq!(
                (part.index.clone(), part.coords.clone()),
                (placed.index(rank as u64), placed.mesh().coords(rank as u64))
            );
            assert!(
                part.blocks.len() == 1 && blocks[part.blocks[0]].ranks.contains(&(rank as u64))
            );
        }
        let one = &axes[random.below(axes.len() as u64) as usize];
        if let Ok(parts) = placed.parts(std::slice::from_ref(one)) {
            for part in &parts {
                let volume: u64 = part.index.iter().map(IndexSet::len).product();
                let of_blocks: BTreeSet<Vec<u64>> =
                    part.blocks.iter().flat_map(|b| elements_of(&blocks[*b].index)).collect();
                assert_eq!(of_blocks.len() as u64, volume);
            }
        }
    }
}

fn elements_of(index: &[IndexSet]) -> Vec<Vec<u64>> {
    index.iter().fold(vec![Vec::new()], |all, set| {
        all.into_iter()
            .flat_map(|e| set.iter().map(move |i| [e.clone(), vec![i]].concat()))
            .collect()
    })
}

#[test]
fn the_array_of_the_teaser() {
    let w = placed(NVL72, "[col {tp}]", &[8192, 8192]);
    let extents: Vec<u64> = w.blocks().iter().map(|b| b.index[1].len()).collect();
    assert_eq!(extents, [vec![911; 8], vec![904]].concat());
    assert_eq!(w.extents_text(), "8192 over tp=9: 8 × 911 + 904");
    assert_eq!(w.blocks()[8].ranks, [16, 17, 34, 35, 52, 53, 70, 71]);
    assert_eq!(
        w.placement().states(w.mesh()).iter().map(|s| s.to_string()).collect::<Vec<_>>(),
        ["R", "S(1)", "R"]
    );
    assert!((w.imbalance().unwrap() - 911.0 * 9.0 / 8192.0).abs() < 1e-12);
    let error = w.check_even().unwrap_err();
    assert_eq!(
        error.message,
        "expected equal blocks, got 8192 elements of dim 1 over tp=9: 8 × 911 + 904"
    );
    assert_eq!(error.code.name(), "E_UNEVEN");
}

#[test]
fn gathering_the_finest_axis_gives_the_coarser_placement() {
    let mut random = Random(seed() ^ 2);
    for _ in 0..200 {
        let n = random.below(60);
        let how = random.pick(&["", " cyclic", " cyclic(3)"]);
        let fine = placed("{axes = [a, b], extents = [3, 4]}", &format!("[{{a, b{how}}}]"), &[n]);
        let coarse = placed("{axes = [a, b], extents = [3, 4]}", &format!("[{{a{how}}}]"), &[n]);
        for a in 0..3 {
            let sets: Vec<IndexSet> = (0..4).map(|b| fine.index(a * 4 + b).remove(0)).collect();
            assert_eq!(IndexSet::union(&sets), coarse.index(a * 4).remove(0), "{n}{how}");
        }
    }
}

#[test]
fn parts_that_are_none() {
    let x = placed(NVL72, "[{dp}, {}] sum{pp}", &[8, 8]);
    let message = |axes: &[&str]| {
        x.parts(&axes.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).unwrap_err().message
    };
    assert_eq!(
        message(&["tp"]),
        "expected an array with parts along `tp`, got [{dp}] sum{pp}: it has parts along `dp`, `pp`"
    );
    assert_eq!(message(&["ep"]), "expected an axis of the mesh (dp, tp, pp), got `ep`");
    assert_eq!(message(&["dp", "dp"]), "the axis `dp` is named twice");
    // Copies: the same part for each coordinate.
    let copies = placed(NVL72, "[]", &[8, 8]).parts(&["tp".to_owned()]).unwrap();
    assert!(copies.len() == 9 && copies.iter().all(|p| p.blocks == [0]));
}
