//! Random words from a seed and counters.

use crate::value::Data;
use tessera_numerics::philox4;

/// One word for each counter; in a lane kernel each lane has its seed.
pub(crate) fn philox(seed: &Data, counter: &Data, word: usize) -> Option<Data> {
    let (Data::I64(seeds), Data::I64(counters)) = (seed, counter) else { return None };
    let seed = |i: usize| if seeds.len() == 1 { seeds[0] } else { seeds[i] };
    let one = |(i, &c): (usize, &i64)| philox4(seed(i) as u64, c as u64)[word];
    Some(Data::U32(counters.iter().enumerate().map(one).collect()))
}
