//! Statistics of samples: outliers, the median and its confidence interval.

/// Samples further above the median than this many deviations are outliers: an interrupt, another
/// process. The deviation is the median one, scaled to that of a normal distribution.
const OUTLIER: f64 = 5.0;
const TO_NORMAL: f64 = 1.4826;
/// Below this part of the median nothing is an outlier, however still the rest is: clocks have
/// steps.
const STEP: f64 = 0.05;

/// The part of the samples below which `part` of them lie, between neighbours in proportion.
pub fn quantile(samples: &[f64], part: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = part.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The samples without outliers. Only slow ones are: nothing makes a machine too fast.
pub fn kept(samples: &[f64]) -> Vec<f64> {
    let Some(middle) = median(samples) else { return Vec::new() };
    let away: Vec<f64> = samples.iter().map(|s| (s - middle).abs()).collect();
    let deviation = TO_NORMAL * median(&away).unwrap_or(0.0);
    let most = middle + (OUTLIER * deviation).max(STEP * middle);
    samples.iter().copied().filter(|&s| s <= most).collect()
}

/// From the first quarter to the last, as a part of the median.
pub fn spread(samples: &[f64]) -> f64 {
    let parts = (quantile(samples, 0.25), median(samples), quantile(samples, 0.75));
    match parts {
        (Some(low), Some(middle), Some(high)) if middle > 0.0 => (high - low) / middle,
        _ => 0.0,
    }
}

/// The ratios of two candidates in the rounds that both took part in.
fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).filter(|(_, to)| **to > 0.0).map(|(of, to)| of / to).collect()
}

/// The median of the ratios of two candidates round by round: what the whole machine did in a round
/// is in both.
pub fn paired_ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    median(&ratios(of, to))
}

/// The same with how far it may be from the truth: the standard error of a median.
pub fn paired_estimate(of: &[f64], to: &[f64]) -> Option<(f64, f64)> {
    let ratios = ratios(of, to);
    let middle = median(&ratios)?;
    let away: Vec<f64> = ratios.iter().map(|r| (r - middle).abs()).collect();
    let deviation = TO_NORMAL * median(&away).unwrap_or(0.0);
    Some((middle, 1.2533 * deviation / (ratios.len() as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slow_sample_is_left_out_and_a_fast_one_stays() {
        let samples = [1.0, 1.01, 0.99, 1.02, 5.0, 0.98, 0.5];
        assert_eq!(kept(&samples), [1.0, 1.01, 0.99, 1.02, 0.98, 0.5]);
        // All the same but for a step of the clock.
        assert_eq!(kept(&[1.0, 1.0, 1.0, 1.04]).len(), 4);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
    }

    #[test]
    fn drift_of_the_machine_is_not_in_paired_ratios() {
        let machine = [1.0, 1.5, 2.0, 4.0, 1.0];
        let one: Vec<f64> = machine.iter().map(|m| m * 1.0).collect();
        let other: Vec<f64> = machine.iter().map(|m| m * 1.1).collect();
        assert!((paired_ratio(&other, &one).unwrap() - 1.1).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn at_least_half_is_kept(samples in prop::collection::vec(1e-9f64..1e3, 1..40)) {
            let kept = kept(&samples);
            prop_assert!(2 * kept.len() >= samples.len());
            prop_assert!(kept.contains(&samples.iter().copied().fold(f64::MAX, f64::min)));
        }
    }
}
