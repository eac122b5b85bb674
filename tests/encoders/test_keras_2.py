"""What Keras 2 says to those who ask for a pretrained encoder."""

import pytest

from rank4class_tf import _keras, encoders

pytestmark = pytest.mark.keras2


@pytest.mark.skipif(_keras.KERAS_3, reason="Keras 3 has pretrained encoders")
@pytest.mark.parametrize("encoder", [encoders.TextEncoder, encoders.ImageEncoder])
def test_keras_hub_needs_keras_3(encoder):
    with pytest.raises(ImportError, match="keras-hub, which works only with Keras 3"):
        encoder("a_preset")
