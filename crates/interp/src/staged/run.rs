//! A launch: the blocks, or clusters of them, one after another, and in each the agents in turn.

use super::agent::{Agent, Progress};
use super::async_units::{AsyncUnits, Queue};
use super::clock::{Clock, Components};
use super::cluster::{self, Cluster};
use super::pipeline::Seat;
use super::prepare::{Prepared, seats};
use super::world::{Chance, World};
use super::{StagedOptions, Timing};
use crate::fault::{Outcome, broken, fault};
use crate::launch::{bind, dims};
use crate::machine::Machine;
use crate::value::{Data, Tile};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_ir::OpId;
use tessera_staged::ops::team::Team;
use tessera_staged::ops::tiles::is_once;
use tessera_target::LaunchArgs;

pub(super) fn launch(
    prepared: &Prepared<'_>,
    args: &LaunchArgs,
    options: StagedOptions,
) -> Outcome<()> {
    let [nx, ny, nz] = args.grid;
    let groups = nx.max(0) * ny.max(0) * nz.max(0);
    let team = Team::of(prepared.func);
    if team.blocks() > 1 && groups > 0 {
        let along = Team::along_launch(prepared.func);
        let teams =
            args.grid.iter().zip(along).map(|(&n, by)| (n + i64::from(by) - 1) / i64::from(by));
        // Few enough blocks that each takes several teams of tiles.
        let clusters = match is_once(prepared.func) {
            true => teams.product(),
            false => (groups / (2 * i64::from(team.blocks()))).max(1),
        };
        for cluster in 0..clusters {
            one_cluster(prepared, args, options, [cluster, 0, 0], (cluster, clusters), team)?;
        }
        return Ok(());
    }
    for block in 0..groups {
        let at = [block / (ny * nz), block / nz % ny, block % nz];
        one_cluster(prepared, args, options, at, (block, groups), team)?;
    }
    Ok(())
}

/// The values of the parameters, and a machine with its views bound.
fn machine<'p>(
    prepared: &'p Prepared<'p>,
    args: &LaunchArgs,
    at: [i64; 3],
) -> Outcome<(Machine<'p>, Vec<(usize, Tile)>)> {
    let program = &prepared.program;
    let mut m = Machine::new(program);
    m.lanes = args.lanes.max(1);
    m.grid = args.grid;
    m.group = at;
    m.dims = dims(program, args)?;
    m.consts = program.consts.iter().map(|&(x, n)| Arc::new(Data::fill(x, n))).collect();
    let scalars = bind(&mut m, args)?;
    Ok((m, scalars))
}

/// Runs the blocks of a cluster, or a single block, to their ends.
fn one_cluster(
    prepared: &Prepared<'_>,
    args: &LaunchArgs,
    options: StagedOptions,
    at: [i64; 3],
    (block, blocks): (i64, i64),
    team: Team,
) -> Outcome<()> {
    let agents = 1 + prepared.roles.iter().map(|(_, r)| r.replicas.max(1) as usize).sum::<usize>();
    let seed = match options.timing {
        Timing::Random(seed) => seed ^ (block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        Timing::Early | Timing::Late => 0,
    };
    let mut worlds = Vec::new();
    let mut mains = Vec::new();
    for rank in 0..team.blocks() {
        let (global, scalars) = machine(prepared, args, at)?;
        let mut world = World {
            prepared,
            global,
            buffers: Vec::new(),
            pipelines: Vec::new(),
            order_barriers: Vec::new(),
            meetings: BTreeMap::new(),
            async_units: AsyncUnits::default(),
            components: Components { agents },
            timing: options.timing,
            chance: Chance(seed.wrapping_add(rank.into())),
            block,
            blocks,
            cluster: Cluster::new(team, rank),
        };
        world.async_units.queues.resize_with(agents, Queue::default);
        let (mut own, _) = machine(prepared, args, at)?;
        scalars.into_iter().for_each(|(stage, value)| own.set(stage, value));
        worlds.push(world);
        mains.push(Agent::new(0, Seat { role: 0, replica: 0 }, own, prepared.func.body));
    }
    loop {
        let mut team = Vec::new();
        for (rank, (main, world)) in mains.iter_mut().zip(&mut worlds).enumerate() {
            loop {
                match main.step(world)? {
                    Progress::Ran => world.maybe_work()?,
                    Progress::Done => break,
                    Progress::Blocked { why, loc } => {
                        return Err(stuck(&[(main.name(), why, loc)]));
                    }
                    Progress::Fork(op) => {
                        let agents = fork(main, world, op, args, at)?;
                        team.extend(agents.into_iter().map(|agent| (rank, agent)));
                        main.advance();
                        break;
                    }
                }
            }
        }
        if team.is_empty() {
            break;
        }
        schedule(&mut team, &mut worlds)?;
        for (rank, agent) in &mut team {
            let world = &mut worlds[*rank];
            world.finish_agent(agent.number)?;
            let out: Clock = world.outgoing(agent);
            mains[*rank].clock.join(&out);
        }
        for (main, world) in mains.iter_mut().zip(&worlds) {
            main.clock.raise(world.components.threads(0), main.now);
        }
    }
    for world in &mut worlds {
        world.finish_agent(0)?;
        world.finish()?;
    }
    Ok(())
}

/// The agents of an op's roles.
fn fork<'p>(
    main: &mut Agent<'p>,
    world: &mut World<'p>,
    op: OpId,
    args: &LaunchArgs,
    at: [i64; 3],
) -> Outcome<Vec<Agent<'p>>> {
    let prepared = world.prepared;
    let func = prepared.func;
    let clock = world.outgoing(main);
    let mut agents = Vec::new();
    let mut number = 1;
    for (place, (role, info)) in prepared.roles.iter().enumerate() {
        let seats = seats(place + 1, Some(info));
        for replica in 0..info.replicas.max(1) {
            if func.blocks[func.ops[*role].block].parent == Some(op) {
                let (own, _) = machine(prepared, args, at)?;
                let seat = seats.get(replica as usize).or(seats.first()).copied();
                let seat = seat.ok_or_else(|| broken("a role without replicas", &func.loc))?;
                let mut agent = Agent::new(number, seat, own, func.ops[*role].regions[0]);
                agent.inherit(main);
                agent.clock = clock.clone();
                agent.role = Some((*role, info.clone()));
                agent.replica = replica;
                agents.push(agent);
            }
            number += 1;
        }
    }
    Ok(agents)
}

/// Steps that an agent takes before another may run.
const QUANTUM: usize = 1 << 20;
const RANDOM_QUANTUM: usize = 8;

/// Runs agents, each in the block of its rank, until all are done.
fn schedule<'p>(agents: &mut [(usize, Agent<'p>)], worlds: &mut [World<'p>]) -> Outcome<()> {
    let mut running: Vec<usize> = (0..agents.len()).collect();
    // The waiting agents and their reasons; cleared when any agent makes progress.
    let mut waiting: BTreeMap<usize, (String, Loc)> = BTreeMap::new();
    while !running.is_empty() {
        let ready: Vec<usize> =
            running.iter().copied().filter(|a| !waiting.contains_key(a)).collect();
        let first = &mut worlds[0];
        let (pick, quantum) = match (first.timing, ready.as_slice()) {
            (_, []) => {
                let all: Vec<_> = waiting
                    .iter()
                    .map(|(&a, (why, loc))| (agents[a].1.name(), why.clone(), loc.clone()))
                    .collect();
                return Err(stuck(&all));
            }
            (Timing::Early, [first, ..]) => (*first, QUANTUM),
            (Timing::Late, [.., last]) => (*last, QUANTUM),
            (Timing::Random(_), some) => {
                let pick = some[first.chance.below(some.len())];
                (pick, 1 + first.chance.below(RANDOM_QUANTUM))
            }
        };
        let (rank, agent) = &mut agents[pick];
        let rank = *rank;
        for _ in 0..quantum {
            match agent.step(&mut worlds[rank])? {
                Progress::Ran => {
                    waiting.clear();
                    worlds[rank].maybe_work()?;
                    cluster::deliver(worlds, rank)?;
                }
                Progress::Blocked { why, loc } => {
                    waiting.insert(pick, (why, loc));
                    break;
                }
                Progress::Done => {
                    running.retain(|&a| a != pick);
                    waiting.clear();
                    worlds[rank].cluster.ended = !running.iter().any(|&a| agents[a].0 == rank);
                    break;
                }
                Progress::Fork(_) => {
                    return Err(broken("roles inside a role", &worlds[rank].prepared.func.loc));
                }
            }
        }
    }
    Ok(())
}

fn stuck(who: &[(String, String, Loc)]) -> crate::fault::Fault {
    let list: Vec<_> = who
        .iter()
        .map(|(name, why, loc)| format!("{name} waits for {why}{}", super::buffer::line(loc)))
        .collect();
    let loc = who.first().map_or_else(Loc::unknown, |(_, _, loc)| loc.clone());
    let why = format!("expected the block to go on, got all waiting: {}", list.join("; "));
    fault(Code::E_DIVERGENT_BARRIER, why, &loc)
}
