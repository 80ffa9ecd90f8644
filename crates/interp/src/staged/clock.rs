//! Vector clocks: the events that an agent knows to have happened. Each agent's threads, each of
//! its asynchronous units and each pipeline's copies are a component.

/// One number for each component; missing ones are zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock(Vec<u64>);

/// The components, as indices of a clock.
#[derive(Copy, Clone, Debug)]
pub(super) struct Components {
    pub agents: usize,
}

impl Components {
    /// The threads of an agent.
    pub fn threads(self, agent: usize) -> usize {
        agent
    }

    /// The MMA groups that an agent issued: which of them are complete.
    pub fn mma(self, agent: usize) -> usize {
        self.agents + agent
    }

    /// Its bulk stores: which have read their memory.
    pub fn bulk(self, agent: usize) -> usize {
        2 * self.agents + agent
    }

    /// The copies into a pipeline: all up to a counter.
    pub fn fills(self, pipeline: usize) -> usize {
        3 * self.agents + pipeline
    }
}

impl Clock {
    pub fn at(&self, component: usize) -> u64 {
        self.0.get(component).copied().unwrap_or(0)
    }

    pub fn raise(&mut self, component: usize, to: u64) {
        if self.0.len() <= component {
            self.0.resize(component + 1, 0);
        }
        self.0[component] = self.0[component].max(to);
    }

    pub fn join(&mut self, other: &Clock) {
        for (component, &value) in other.0.iter().enumerate() {
            self.raise(component, value);
        }
    }
}
