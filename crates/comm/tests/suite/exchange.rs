//! Blocks from any placement to any other, against the elements by their numbers in the whole array.

use crate::brute::{Random, elements};
use tessera_comm::{BlockMemory, exchange};
use tessera_mesh::{Combine, IndexSet, Kind, Mesh, Placed, Spec};
use tessera_numerics::DType;

/// Memory for a block, by its positions.
fn memory(bytes: &mut [u8], index: &[IndexSet], item: usize, dtype: Option<DType>) -> BlockMemory {
    let extents = index.iter().map(IndexSet::len).collect();
    // SAFETY: each call has blocks of its own, which live longer.
    unsafe { BlockMemory::new(bytes.as_mut_ptr(), extents, item, dtype) }
}

/// The element of the array at a place of a block.
fn element(index: &[IndexSet], place: &[u64]) -> Vec<u64> {
    index.iter().zip(place).map(|(set, at)| set.iter().nth(*at as usize).unwrap()).collect()
}

fn numbers(placed: &Placed, index: &[IndexSet]) -> Vec<u64> {
    let extents: Vec<u64> = index.iter().map(IndexSet::len).collect();
    let number =
        |e: Vec<u64>| e.iter().zip(placed.shape()).fold(0, |n, (i, extent)| n * extent + i);
    elements(&extents).iter().map(|place| number(element(index, place))).collect()
}

fn cases(salt: u64) -> impl Iterator<Item = (Placed, Placed, Random)> {
    let seed = crate::seed() ^ salt;
    (0..600).map(move |case| {
        let mut random = Random(seed + 1000 * case);
        let from = random.placed();
        let spec = random.spec(from.mesh(), from.shape().len());
        let to = Placed::new(from.mesh().clone(), &spec, from.shape(), &[]).unwrap();
        (from, to, random)
    })
}

/// Elements of 1 to 16 bytes, numbered by the whole array: after an exchange each is where the other placement has it.
#[test]
fn copies_bring_each_element_to_its_place() {
    for (from, to, mut random) in cases(3) {
        let item = [1, 2, 4, 8, 3, 16][random.below(6) as usize];
        let filled = |placed: &Placed, index: &[IndexSet]| -> Vec<u8> {
            let each = numbers(placed, index).into_iter();
            each.flat_map(|n| vec![1 + (n % 255) as u8; item]).collect()
        };
        let mut given: Vec<Vec<u8>> =
            from.blocks().iter().map(|b| filled(&from, &b.index)).collect();
        let mut made: Vec<Vec<u8>> =
            to.blocks().iter().map(|b| vec![0; filled(&to, &b.index).len()]).collect();
        let of = |placed: &Placed, all: &mut [Vec<u8>]| -> Vec<BlockMemory> {
            let each = all.iter_mut().zip(placed.blocks());
            each.map(|(bytes, b)| memory(bytes, &b.index, item, Some(DType::F32))).collect()
        };
        let (sources, targets) = (of(&from, &mut given), of(&to, &mut made));
        if from.placement().combine().is_some() && item != 4 {
            continue;
        }
        let done = exchange(&from, &to, &sources, &targets, 3).unwrap();
        if matches!(done.kind, Kind::Combined(_)) {
            continue;
        }
        for ((target, bytes), is_filled) in to.blocks().iter().zip(&made).zip(done.filled) {
            let arrives = done.kind == Kind::Kept || target.contribution == 0;
            let expected = if arrives { filled(&to, &target.index) } else { vec![0; bytes.len()] };
            assert_eq!(*bytes, expected, "{from:?} to {to:?}, elements of {item} bytes");
            assert_eq!(is_filled, arrives && !bytes.is_empty());
        }
    }
}

/// Contributions of whole numbers, whose combination is exact.
#[test]
fn contributions_are_combined() {
    for (from, to, _) in cases(4) {
        let Some(op) = from.placement().combine() else { continue };
        let value = |n: u64, contribution: u64| ((n * 7 + contribution * 3) % 5) as f32 - 1.0;
        let mut given: Vec<Vec<u8>> = from
            .blocks()
            .iter()
            .map(|b| {
                let each = numbers(&from, &b.index).into_iter();
                each.flat_map(|n| value(n, b.contribution).to_ne_bytes()).collect()
            })
            .collect();
        let mut made: Vec<Vec<u8>> =
            to.blocks().iter().map(|b| vec![0; 4 * numbers(&to, &b.index).len()]).collect();
        let of = |placed: &Placed, all: &mut [Vec<u8>]| -> Vec<BlockMemory> {
            let each = all.iter_mut().zip(placed.blocks());
            each.map(|(bytes, b)| memory(bytes, &b.index, 4, Some(DType::F32))).collect()
        };
        let (sources, targets) = (of(&from, &mut given), of(&to, &mut made));
        let done = exchange(&from, &to, &sources, &targets, 3).unwrap();
        if !matches!(done.kind, Kind::Combined(_)) {
            continue;
        }
        for (target, bytes) in to.blocks().iter().zip(&made).filter(|(t, _)| t.contribution == 0) {
            let found: Vec<f32> =
                bytes.as_chunks::<4>().0.iter().map(|x| f32::from_ne_bytes(*x)).collect();
            let join = |n: u64| {
                let all = (0..from.contributions()).map(|c| value(n, c));
                match op {
                    Combine::Sum => all.sum::<f32>(),
                    Combine::Prod => all.product(),
                    Combine::Max => all.reduce(f32::max).unwrap(),
                    Combine::Min => all.reduce(f32::min).unwrap(),
                }
            };
            let expected: Vec<f32> = numbers(&to, &target.index).into_iter().map(join).collect();
            assert_eq!(found, expected, "{from:?} to {to:?}");
        }
    }
}

fn placed(text: &str, shape: &[u64]) -> Placed {
    let mesh = Mesh::parse("{axes = [a], extents = [4]}").unwrap();
    Placed::new(mesh, &Spec::parse(text).unwrap(), shape, &[]).unwrap()
}

/// Large enough for several threads: parts are cut along rows, columns and cycles, and combinations by bytes.
#[test]
fn parts_of_large_arrays_are_the_whole() {
    let shape = [1024, 4100];
    let all: Vec<u32> = (0..1024 * 4100).collect();
    let texts = ["[{}, {}]", "[{a}, {}]", "[{}, {a}]", "[{a cyclic}, {}]", "[{}, {a cyclic(64)}]"];
    for (from, to) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
        let (from, to) = (placed(from, &shape), placed(to, &shape));
        let of = |placed: &Placed| -> Vec<Vec<u8>> {
            let each = placed.blocks().iter();
            each.map(|b| {
                let (rows, columns) = (&b.index[0], &b.index[1]);
                let columns: Vec<u64> = columns.iter().collect();
                let row = |r: u64| columns.iter().map(move |c| all_at(r, *c));
                rows.iter().flat_map(row).flat_map(|at| all[at].to_ne_bytes()).collect()
            })
            .collect()
        };
        let (mut given, expected) = (of(&from), of(&to));
        let mut made: Vec<Vec<u8>> = expected.iter().map(|b| vec![0; b.len()]).collect();
        let memories = |placed: &Placed, all: &mut [Vec<u8>]| -> Vec<BlockMemory> {
            let each = all.iter_mut().zip(placed.blocks());
            each.map(|(bytes, b)| memory(bytes, &b.index, 4, None)).collect()
        };
        let (sources, targets) = (memories(&from, &mut given), memories(&to, &mut made));
        exchange(&from, &to, &sources, &targets, 3).unwrap();
        assert!(made == expected, "{from:?} to {to:?}");
    }
    let (from, to) = (placed("[{}, {}] sum{a}", &shape), placed("[{}, {}]", &shape));
    let one: Vec<u8> = all.iter().flat_map(|x| (*x as f32).to_ne_bytes()).collect();
    let mut given = vec![one; 4];
    let mut made = [vec![0; given[0].len()]];
    let block = &to.blocks()[0].index;
    let sources: Vec<BlockMemory> =
        given.iter_mut().map(|b| memory(b, block, 4, Some(DType::F32))).collect();
    let targets = [memory(&mut made[0], block, 4, Some(DType::F32))];
    exchange(&from, &to, &sources, &targets, 3).unwrap();
    let found = made[0].as_chunks::<4>().0.iter().map(|x| f32::from_ne_bytes(*x));
    assert!(found.eq(all.iter().map(|x| *x as f32 * 4.0)));
}

fn all_at(row: u64, column: u64) -> usize {
    (row * 4100 + column) as usize
}

#[test]
fn blocks_that_overlap_or_do_not_fit_are_refused() {
    let (from, to) = (placed("[{a}]", &[8]), placed("[{}]", &[8]));
    let (mut given, mut made) = (vec![0_u8; 32], vec![0_u8; 32]);
    let quarters = |bytes: &mut [u8]| -> Vec<BlockMemory> {
        let blocks = from.blocks();
        let each = bytes.chunks_mut(8).zip(blocks);
        each.map(|(b, of)| memory(b, &of.index, 4, None)).collect()
    };
    let whole = |bytes: &mut [u8]| [memory(bytes, &to.blocks()[0].index, 4, None)];
    assert!(exchange(&from, &to, &quarters(&mut given), &whole(&mut made), 1).is_ok());
    assert!(exchange(&from, &to, &quarters(&mut given), &whole(&mut given), 1).is_err());
    assert!(exchange(&to, &from, &whole(&mut given), &quarters(&mut given), 1).is_err());
    assert!(exchange(&from, &to, &whole(&mut given), &whole(&mut made), 1).is_err());
    assert!(exchange(&to, &to, &whole(&mut given), &quarters(&mut made), 1).is_err());
    let narrow = [memory(&mut made, &to.blocks()[0].index, 2, None)];
    assert!(exchange(&from, &to, &quarters(&mut given), &narrow, 1).is_err());
    let same = [memory(&mut made, &to.blocks()[0].index, 4, None)];
    assert!(exchange(&to, &to, &same, &same, 1).is_err());
}
