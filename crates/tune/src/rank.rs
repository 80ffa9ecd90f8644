//! The order in which candidates are measured, by the cost model's predictions.

/// The indices of candidates, the fastest prediction first; equal ones in their own order, and
/// those without a prediction after all others.
pub fn order(predicted: &[Option<f64>]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..predicted.len()).collect();
    let key = |place: usize| predicted[place].unwrap_or(f64::INFINITY);
    places.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_stable() {
        assert_eq!(order(&[Some(2.0), None, Some(1.0), Some(1.0)]), [2, 3, 0, 1]);
    }
}
