//! The code of a rank: its plan as instructions with jumps, so that a rank can leave at any collective, and another go on.

use super::list::Command;
use super::shared::{Mask, Shared};
use tessera_plan::{Array, Collective};

/// The plan of a rank as a worker runs it: lists with a collective inside are instructions with jumps, so that a rank can leave at any of
/// them, and another go on.
pub struct Code {
    pub instrs: Vec<Instr>,
    /// How the arrays were aligned that launches were settled for.
    pub aligned: Option<Vec<u8>>,
}

pub enum Instr {
    Do(Command),
    /// Steps that one of the ranks does which agree on their coordinates along these axes. The number is that among such.
    Once {
        steps: Vec<Command>,
        along: Mask,
        number: usize,
    },
    /// The number is that of the collective in the code.
    Start {
        how: Collective,
        from: Array,
        to: Array,
        number: usize,
    },
    /// An event behind the collectives so far.
    Record(usize),
    Wait(usize),
    Unless {
        pred: Array,
        to: usize,
    },
    Jump(usize),
    /// The next iteration of a loop, or its end.
    Iterate {
        id: usize,
        trip: i64,
        reverse: bool,
        position: Array,
        end: usize,
    },
}

/// Whether a step is a collective, or has one inside.
pub fn is_for_ranks(command: &Command) -> bool {
    let any = |list: &[Command]| list.iter().any(is_for_ranks);
    match command {
        Command::Collective { .. } => true,
        Command::Launch { .. }
        | Command::Host { .. }
        | Command::Call { .. }
        | Command::Copy { .. }
        | Command::Record { .. }
        | Command::Wait { .. } => false,
        Command::If { branches: [then, otherwise], .. } => any(then) || any(otherwise),
        Command::While { test, body, .. } => any(test) || any(body),
        Command::Loop { body, .. } => any(body),
    }
}

impl Code {
    pub fn new(commands: Vec<Command>, shared: &Shared) -> Self {
        let mut coder = Coder { shared, instrs: Vec::new(), fence: 0, collectives: 0, onces: 0 };
        coder.list(commands, 0);
        Self { instrs: coder.instrs, aligned: None }
    }
}

struct Coder<'a> {
    shared: &'a Shared,
    instrs: Vec<Instr>,
    /// Where the list of steps begins, or what is behind a jump: steps before it run at other times.
    fence: usize,
    collectives: usize,
    onces: usize,
}

impl Coder<'_> {
    /// `under` are the axes along which the condition varies that the steps are under.
    fn list(&mut self, commands: Vec<Command>, under: Mask) {
        self.fence = self.instrs.len();
        for command in commands {
            self.command(command, under);
        }
    }

    fn unless(&mut self, pred: Array) -> usize {
        self.instrs.push(Instr::Unless { pred, to: 0 });
        self.instrs.len() - 1
    }

    /// Sets where a jump goes: behind what there is so far.
    fn land(&mut self, jump: usize) {
        let here = self.instrs.len();
        self.fence = here;
        match &mut self.instrs[jump] {
            Instr::Unless { to, .. } | Instr::Jump(to) | Instr::Iterate { end: to, .. } => {
                *to = here;
            }
            Instr::Do(_)
            | Instr::Once { .. }
            | Instr::Start { .. }
            | Instr::Record(_)
            | Instr::Wait(_) => {}
        }
    }

    /// A step without collectives: by each rank, or by one for those that share its results. Such steps that follow each other are done together,
    /// and what they wait for is waited for before them.
    fn work(&mut self, command: Command, under: Mask) {
        let along = self.shared.along(&command, under);
        if along == self.shared.all {
            self.instrs.push(Instr::Do(command));
            return;
        }
        let between = |i: &Instr| matches!(i, Instr::Wait(_));
        let fence = self.fence;
        let last = self.instrs[fence..].iter().rposition(|i| !between(i)).map(|at| at + fence);
        if let Some(at) = last
            && let Instr::Once { along: known, .. } = &self.instrs[at]
            && *known == along
        {
            self.instrs[at..].rotate_left(1);
            if let Some(Instr::Once { steps, .. }) = self.instrs.last_mut() {
                steps.push(command);
            }
            return;
        }
        let number = self.onces;
        self.onces += 1;
        self.instrs.push(Instr::Once { steps: vec![command], along, number });
    }

    fn command(&mut self, command: Command, under: Mask) {
        if !is_for_ranks(&command) {
            match command {
                // Other queues than the main one are that of collectives, and the host is over with a step when it goes on.
                Command::Record { event, on } if on != 0 => self.instrs.push(Instr::Record(event)),
                Command::Wait { event, on: 0 } => self.instrs.push(Instr::Wait(event)),
                Command::Record { .. } | Command::Wait { .. } => {}
                command => self.work(command, under),
            }
            return;
        }
        match command {
            Command::Collective { how, from, to } => {
                let number = self.collectives;
                self.collectives += 1;
                self.instrs.push(Instr::Start { how, from, to, number });
            }
            Command::If { pred, branches: [then, otherwise], .. } => {
                let under = under | self.shared.varies(pred.buffer);
                let skip = self.unless(pred);
                self.list(then, under);
                let over = self.instrs.len();
                self.instrs.push(Instr::Jump(0));
                self.land(skip);
                self.list(otherwise, under);
                self.land(over);
            }
            Command::While { test, pred, body, .. } => {
                let under = under | self.shared.varies(pred.buffer);
                let again = self.instrs.len();
                self.list(test, under);
                let over = self.unless(pred);
                self.list(body, under);
                self.instrs.push(Instr::Jump(again));
                self.land(over);
            }
            Command::Loop { id, trip, reverse, position, body } => {
                let again = self.instrs.len();
                self.instrs.push(Instr::Iterate { id, trip, reverse, position, end: 0 });
                self.list(body, under);
                self.instrs.push(Instr::Jump(again));
                self.land(again);
            }
            command => self.instrs.push(Instr::Do(command)),
        }
    }
}
