//! Round-trip times from coordinates.

/// Where a node is, degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub latitude: f64,
    pub longitude: f64,
}

impl Place {
    /// A place on earth; `None` if the numbers are not one (some files hold positions in a drawing).
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let real = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        real.then_some(Self { latitude, longitude })
    }

    /// Great-circle distance, km.
    pub fn distance_km(self, other: Self) -> f64 {
        const EARTH_KM: f64 = 6371.0;
        let (a, b) = (self.latitude.to_radians(), other.latitude.to_radians());
        let (dlat, dlon) = (b - a, (other.longitude - self.longitude).to_radians());
        let h = (dlat / 2.0).sin().powi(2) + a.cos() * b.cos() * (dlon / 2.0).sin().powi(2);
        2.0 * EARTH_KM * h.clamp(0.0, 1.0).sqrt().asin()
    }
}

/// Round-trip time of a fibre along the great circle, microseconds, at least 100: light in glass makes 200 km in a
/// millisecond, and it goes there and back.
pub(super) fn rtt_us(a: Place, b: Place) -> u32 {
    let us = (a.distance_km(b) * 10.0).round().max(100.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // half the equator is 200 ms
    let us = us as u32;
    us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn london_to_new_york_is_5570_km_and_56_ms() {
        let london = Place::new(51.507, -0.128).unwrap();
        let new_york = Place::new(40.713, -74.006).unwrap();
        assert!((london.distance_km(new_york) - 5570.0).abs() < 5.0);
        assert!(rtt_us(london, new_york).abs_diff(55_700) < 50);
        assert_eq!(rtt_us(london, london), 100);
        assert_eq!(Place::new(91.0, 0.0), None);
        assert_eq!(Place::new(f64::NAN, 0.0), None);
    }
}
