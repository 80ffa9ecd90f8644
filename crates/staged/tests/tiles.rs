//! Orders of tiles.

use std::collections::BTreeSet;
use tessera_staged::ops::team::Team;
use tessera_staged::ops::tiles::{Order, Raster};

#[test]
fn every_order_visits_every_tile_once() {
    let bands = [(0, 3), (1, 2), (0, 64)].map(|(axis, width)| Raster::Band { axis, width });
    let sections = [1, 3, 16, 64].map(Raster::Sections);
    let all = bands.into_iter().chain(sections).map(Some).chain([None]);
    for (raster, longest_first) in all.flat_map(|r| [(r, false), (r, true)]) {
        for folded in [false, true] {
            let order = Order { raster, longest_first, folded, ..Order::default() };
            let grid = [5, 4, 2];
            let seen: BTreeSet<_> = (0..40).map(|n| order.tile(&grid, n, 0)).collect();
            assert_eq!(seen.len(), 40);
            assert!(seen.iter().all(|at| at.iter().zip(grid).all(|(&p, n)| p < n)));
        }
    }
}

#[test]
fn the_blocks_of_clusters_visit_every_tile_once_and_some_beyond_the_grid() {
    for (shape, raster) in [([2, 1, 1], Some((0, 4))), ([1, 4, 1], None), ([2, 2, 1], Some((1, 2)))]
    {
        let raster = raster.map(|(axis, width)| Raster::Band { axis, width });
        let order = Order { raster, team: Team { shape }, ..Order::default() };
        let grid = [5, 3, 2];
        let teams: i64 = order.teams(&grid).iter().product();
        let ranks = order.team.blocks();
        let all: Vec<_> = (0..teams)
            .flat_map(|n| (0..ranks).map(move |r| (n, r)))
            .map(|(n, r)| order.tile(&grid, n, r))
            .collect();
        let inside: BTreeSet<_> =
            all.iter().filter(|at| at.iter().zip(grid).all(|(&p, n)| p < n)).collect();
        assert_eq!((inside.len(), all.len() as i64), (30, teams * i64::from(ranks)));
    }
}

#[test]
fn pairs_stay_together_where_there_are_enough() {
    let order = Order { pairs: true, ..Order::default() };
    let takers =
        |total: i64| -> Vec<i64> { (0..total).map(|n| order.block_of(n, total, 2)).collect() };
    assert_eq!(takers(7), [0, 0, 1, 1, 0, 0, 1]);
    assert_eq!(takers(5), [0, 1, 0, 1, 0]);
    let once = Order { once: true, ..Order::default() };
    assert!((0..5).all(|n| once.block_of(n, 5, 5) == n));
}

#[test]
fn groups_are_walked_along_their_axis_first() {
    let raster = Some(Raster::Band { axis: 0, width: 2 });
    let order = Order { raster, ..Order::default() };
    let walk: Vec<_> = (0..6).map(|n| order.tile(&[3, 2], n, 0)).collect();
    assert_eq!(walk, [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]]);
}

#[test]
fn sections_are_places_of_all_axes_but_the_last_and_end_with_its_end() {
    let raster = Some(Raster::Sections(4));
    let order = Order { raster, longest_first: true, ..Order::default() };
    let walk: Vec<_> = (0..12).map(|n| order.tile(&[2, 3, 2], n, 0)).collect();
    let first = [[0, 0, 1], [0, 1, 1], [0, 2, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0]];
    assert_eq!(walk[..6], first);
    assert_eq!(walk[8..], [[1, 1, 1], [1, 2, 1], [1, 1, 0], [1, 2, 0]]);
}

#[test]
fn sections_have_fewer_places_where_the_last_axis_is_long() {
    let order = Order { raster: Some(Raster::Sections(4)), section: Some(9), ..Order::default() };
    let first = |grid: [i64; 2]| {
        let at = (0..grid[0] * grid[1]).map(|n| order.tile(&grid, n, 0));
        at.take_while(|at| at[1] == 0).count()
    };
    assert_eq!([first([8, 2]), first([6, 3]), first([6, 100])], [4, 3, 2]);
    // Two sections of five and not three of four, four and two.
    assert_eq!(first([9, 2]), 5);
    for grid in [[6, 2], [7, 3], [5, 100], [1, 9]] {
        let all = grid[0] * grid[1];
        let seen: BTreeSet<_> = (0..all).map(|n| order.tile(&grid, n, 0)).collect();
        assert_eq!(seen.len() as i64, all);
    }
}

#[test]
fn a_folded_axis_goes_from_both_ends_to_the_middle() {
    let order = Order { pairs: true, folded: true, ..Order::default() };
    let walk: Vec<_> = (0..5).map(|n| order.tile(&[1, 5], n, 0)[1]).collect();
    assert_eq!(walk, [4, 0, 3, 1, 2]);
}
