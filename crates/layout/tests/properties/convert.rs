use proptest::prelude::*;
use tessera_layout::{
    Between, In, LANES, Layout, Move, Place, best_between, best_shared_for, cheapest, conversion,
    cost, cost_of,
};

use crate::random::{config, coords, draws, elements, is_padding, places};

/// The element that each register of each thread holds; `None` is padding or not yet written.
type Registers = Vec<Option<Vec<u32>>>;

fn index(layout: &Layout, place: Place) -> usize {
    let thread = (place.cta * layout.warps() + place.warp) * LANES + place.lane;
    (thread * layout.regs() + place.reg) as usize
}

fn filled(layout: &Layout) -> Registers {
    let holds = |place| (!is_padding(layout, place)).then(|| coords(layout, place));
    places(layout).map(holds).collect()
}

/// Executes a plan.
fn execute(way: &Move, from: &Layout, to: &Layout, source: &Registers) -> Registers {
    let mut result: Registers = vec![None; places(to).count()];
    match way {
        Move::Nothing => result.clone_from(source),
        Move::Registers(map) => {
            for place in places(to) {
                let reg = map[place.reg as usize];
                result[index(to, place)] = source[index(from, Place { reg, ..place })].clone();
            }
        }
        Move::Shuffle { rounds } => {
            for round in rounds {
                for place in places(to).filter(|place| place.reg == 0) {
                    let lane = round.from.at(place.lane);
                    let sent = Place { lane, reg: round.send.at(lane), ..place };
                    let into = Place { reg: round.into.at(place.lane), ..place };
                    let slot = &mut result[index(to, into)];
                    assert_eq!(*slot, None, "{into:?} is written twice");
                    slot.clone_from(&source[index(from, sent)]);
                }
            }
        }
        Move::Shared { across } => {
            // Through memory that is visible only within the synchronised threads.
            let shared = best_shared_for(from, to, 4);
            let (warps, ctas) = match across {
                In::Cta => (1, 1),
                In::Warp => (1, from.ctas()),
                _ => (from.warps(), from.ctas()),
            };
            let memory = |place: Place| (place.cta % ctas * warps + place.warp % warps) as usize;
            let size = shared.bytes() as usize;
            let mut bytes = vec![None; size * (warps * ctas) as usize];
            let at = |place, coords: &[u32]| size * memory(place) + shared.offset(coords) as usize;
            for place in places(from) {
                if let Some(element) = &source[index(from, place)] {
                    bytes[at(place, element)] = Some(element.clone());
                }
            }
            for place in places(to).filter(|&place| !is_padding(to, place)) {
                result[index(to, place)] = bytes[at(place, &coords(to, place))].clone();
            }
        }
    }
    result
}

fn assert_converts(way: &Move, from: &Layout, to: &Layout) {
    let result = execute(way, from, to, &filled(from));
    for place in places(to).filter(|&place| !is_padding(to, place)) {
        let got = result[index(to, place)].as_ref();
        assert_eq!(got, Some(&coords(to, place)), "{place:?} from {from} to {to}: {way:?}");
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn plans_put_every_element_where_it_belongs(mut draw in draws()) {
        let rank = 1 + draw.below(3);
        let from = draw.layout(rank);
        let to = draw.variant(&from);
        assert_converts(&conversion(&from, &to), &from, &to);
        assert_converts(&cheapest(&from, &to, 2), &from, &to);
    }

    #[test]
    fn blocked_layouts_convert_into_each_other(mut draw in draws()) {
        let shape = draw.shape(2, 20);
        let mut make = || Layout::coalesced(&shape, Some(draw.below(2)), 1 << draw.below(3), 2, 1, None);
        let (from, to) = (make(), make());
        assert_converts(&conversion(&from, &to), &from, &to);
    }
}

#[test]
fn bits_that_stay_in_a_warp_are_shuffled() {
    let shuffled = |from: &Layout, to: &Layout| {
        let way = conversion(from, to);
        assert_converts(&way, from, to);
        let Move::Shuffle { rounds } = way else { panic!("{way:?}: from {from} to {to}") };
        rounds
    };
    // A transposition of 32 x 32 in one warp: rows in registers to columns in registers.
    let rows = Layout::coalesced(&[32, 32], Some(1), 1, 1, 1, None);
    let cols = Layout::coalesced(&[32, 32], Some(0), 1, 1, 1, None);
    assert_eq!(shuffled(&rows, &cols).len(), 32);
    // A lane bit for a register bit is a butterfly in half of the rounds.
    let parse = |text: &str| Layout::parse(text, &[64]).unwrap();
    let from = parse("[reg 1; lane 2 4 8 16 32]");
    let to = parse("[reg 2; lane 1 4 8 16 32]");
    let rounds = shuffled(&from, &to);
    assert!(rounds.iter().all(|round| round.from.mask().is_some()), "{rounds:?}");
    assert_eq!(rounds.iter().filter(|round| round.stays()).count(), 1);
    // One warp's fragment of an accumulator to rows of neighbours.
    let acc = Layout::mma_acc(&[16, 32], [1, 1]);
    let side = Layout::coalesced(&[16, 32], Some(1), 8, 1, 1, None);
    assert_eq!(shuffled(&acc, &side).len(), 16);
    // Repeats that are no power of two.
    let acc = Layout::mma_acc(&[16, 24], [1, 1]);
    let to = Layout::parse("[reg 0,1 8,0; lane 1,0 2,0 4,0 0,2 0,4; repeat 1,3]", &[16, 24]);
    assert_eq!(shuffled(&acc, &to.unwrap()).len(), 12);
    // Copies: each of four lanes has the row's sum, and one of them is to have it.
    let sums = Layout::mma_acc(&[16, 32], [1, 1]).reduce(1);
    let to = Layout::coalesced(&[16], Some(0), 1, 1, 1, None);
    assert_eq!(shuffled(&sums, &to).len(), 1);
}

#[test]
fn the_nearest_way_is_taken() {
    let acc = Layout::mma_acc(&[64, 64], [4, 1]);
    assert_eq!(conversion(&acc, &acc), Move::Nothing);
    assert_eq!(conversion(&acc, &acc.folded()), Move::Nothing);
    assert_eq!(cost(&acc, &acc, 4), Default::default());
    let columns_first = Layout::mma_acc(&[128, 64], [4, 1]).with_order(&[0, 1]).unwrap();
    let rows_first = Layout::mma_acc(&[128, 64], [4, 1]);
    assert!(matches!(conversion(&columns_first, &rows_first), Move::Registers(_)));
    let side = Layout::coalesced(&[64, 64], Some(1), 4, 4, 1, None);
    assert_eq!(conversion(&acc, &side), Move::Shared { across: In::Warp });
    assert_converts(&Move::Shared { across: In::Warp }, &acc, &side);
    let halves = [0, 1].map(|dim| Layout::coalesced(&[64, 64], Some(1), 4, 4, 2, Some(dim)));
    assert_eq!(conversion(&halves[0], &halves[1]), Move::Shared { across: In::Cta });
    let price = cost(&acc, &side, 4);
    assert_eq!((price.conflicts, price.barriers), (0, 2));
    assert_eq!(elements(&[64, 64]).len() as u32 * 4, price.bytes);
}

#[test]
fn many_registers_go_through_shared_memory_when_that_is_cheaper() {
    let rows = Layout::coalesced(&[64, 64], Some(1), 4, 1, 1, None);
    let cols = Layout::coalesced(&[64, 64], Some(0), 4, 1, 1, None);
    let near = conversion(&rows, &cols);
    assert!(matches!(near, Move::Shuffle { .. }));
    let way = cheapest(&rows, &cols, 4);
    let cycles = |way: &Move| cost_of(way, &rows, &cols, 4).cycles();
    assert!(cycles(&way) <= cycles(&near));
    assert_eq!(way, Move::Shared { across: In::Lane });
    assert_converts(&way, &rows, &cols);
}

/// Registers in another order hold the same elements in the same threads, those along the dim first.
#[test]
fn registers_along_a_dim_come_first() {
    let layout = Layout::coalesced_beside(&[64, 64], Some(1), 8, Some((0, 8)), 2, 1, None);
    assert_eq!((layout.run_along(1), layout.run_along(0)), (8, 1));
    let turned = layout.regs_along(0);
    assert_eq!((turned.run_along(0), turned.run_along(1)), (8, 1));
    let map = Layout::reg_map(&layout, &turned).expect("threads hold the same");
    for (reg, from) in (0..).zip(map) {
        for lane in [0, 5, 31] {
            assert_eq!(turned.coords(reg, lane, 1, 0), layout.coords(from, lane, 1, 0));
        }
    }
    assert_eq!(layout.regs_along(1), layout);
}

/// Blocks of vectors both ways are transposed in the widest accesses, without conflicts.
#[test]
fn transposes_of_blocks_have_no_conflicts() {
    for (bytes, shape, warps) in
        [(1, [128, 128], 8), (2, [64, 64], 2), (2, [128, 64], 4), (4, [64, 64], 8)]
    {
        let each = 16 / bytes;
        let from = Layout::coalesced_beside(&shape, Some(1), each, Some((0, each)), warps, 1, None);
        let to = Layout::coalesced_beside(&shape, Some(0), each, Some((1, each)), warps, 1, None);
        let Between { write, read, shared } = best_between(&from, &to, bytes);
        for layout in [&write, &read] {
            let vector = shared.vector(layout);
            assert_eq!(shared.conflicts(layout, vector), 0, "{bytes} {shape:?}");
            if bytes > 1 {
                assert_eq!(vector * bytes, 16, "{bytes} {shape:?}: {shared:?}");
            }
        }
    }
}
